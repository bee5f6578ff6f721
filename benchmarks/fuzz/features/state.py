"""Section 2: state that the method itself changes."""

from __future__ import annotations

import torch

from benchmarks.fuzz.builder import Builder
from benchmarks.fuzz.features import feature


@feature("2 buffer assigned", 2.0)
def buffer_assigned(g: Builder) -> None:
    """The method assigns to its own registered buffer."""
    main, name = g.main(), g.name("ema")
    g.add_setup(f"self.register_buffer('{name}', torch.zeros(4))")
    early = g.set(f"{main} + self.{name}") if g.chance.random() < 0.5 else None
    g.statement(
        g.chance.choice(
            [
                f"self.{name} = self.{name} * 0.5 + {main}.mean(0)",
                f"self.{name} = {main}.sum(0)",
                f"self.{name} += {main}.mean(0)",
                f"self._buffers['{name}'] = self.{name} + 1.0",
                f"setattr(self, '{name}', self.{name} - {main}[0])",
            ]
        )
    )
    late = g.set(f"{main} * 2 + self.{name}") if g.chance.random() < 0.7 else None
    g.give(*(found for found in (early, late) if found))
    g.add_edit("2 own buffer replaced", f"m.{name} = tensor((4,), 9)")


@feature("2 buffers swapped", 1.0)
def buffers_swapped(g: Builder) -> None:
    """Two buffers are swapped."""
    main, one, two = g.main(), g.name("front"), g.name("back")
    g.add_setup(f"self.register_buffer('{one}', torch.zeros(4))\nself.register_buffer('{two}', torch.ones(4))")
    g.statement(f"self.{one}, self.{two} = self.{two}, self.{one}")
    name = g.set(f"{main} + self.{one} * 3.0")
    if name:
        g.give(name)


@feature("2 buffer grows", 1.5)
def buffer_grows(g: Builder) -> None:
    """A key-value cache as a buffer or an attribute that grows by concatenation."""
    main, name = g.main(), g.name("kv")
    form = g.chance.choice([f"self.register_buffer('{name}', torch.zeros(1, 4))", f"self.{name} = torch.zeros(1, 4)"])
    g.add_setup(form)
    g.statement(f"self.{name} = torch.cat([self.{name}, {main}[:1]], 0)")
    name = g.set(f"self.{name}.sum(0) + {main}")
    if name:
        g.give(name)


@feature("2 buffer in place", 1.5)
def buffer_in_place(g: Builder) -> None:
    """A buffer or ordinary tensor that is written in place."""
    main, name = g.main(), g.name("acc")
    g.add_setup(g.chance.choice([f"self.register_buffer('{name}', torch.zeros(4))", f"self.{name} = torch.zeros(4)"]))
    line = g.chance.choice(
        [
            f"self.{name}.add_({main}.sum(0))",
            f"self.{name}.copy_({main}[0])",
            f"self.{name}[1] = {main}[0, 0]",
            f"self.{name} += 1.0",
            f"self.{name}.mul_(0.5).add_(1.0)",
            f"self.{name}[:2].fill_(3.0)",
            f"torch.add(self.{name}, 1.0, out=self.{name})",
        ]
    )
    early = g.set(f"self.{name} * 1.0") if g.chance.random() < 0.4 else None
    g.statement(line)
    late = g.set(f"{main} + self.{name}")
    g.give(*(found for found in (early, late) if found))
    if g.chance.random() < 0.3:
        g.give(f"self.{name}")
    g.add_edit("2 own buffer replaced", f"m.{name} = tensor((4,), 9)")


@feature("2 parameter written", 1.5)
def parameter_written(g: Builder) -> None:
    """A parameter that is written through `.data`, in place, or exchanged."""
    main, name = g.main(), g.name("weight")
    g.add_setup(f"self.{name} = torch.nn.Parameter(torch.ones(4), requires_grad={g.chance.choice(['True', 'False'])})")
    g.statement(
        g.chance.choice(
            [
                f"self.{name}.data.add_(1.0)",
                # A tensor of a subclass as `.data` of a plain parameter ends the process inside torch, in eager.
                f"self.{name}.data = {main}.sum(0)" if type(g.space()[main]) is torch.Tensor else "pass",
                f"self.{name}.mul_(0.5)",
                f"self.{name}.data.copy_({main}[0])",
                f"self.{name}.detach().add_(1)",
                f"self.{name} = torch.nn.Parameter({main}[0].clone())",
                f"self.{name}.requires_grad_(False)",
            ]
        )
    )
    name = g.set(f"{main} * self.{name}")
    if name:
        g.give(name)


@feature("2 counter", 1.5)
def counter(g: Builder) -> None:
    """A number on the module, a class, a global or in a container that counts calls."""
    main, name = g.main(), g.name("count")
    kind = g.chance.randrange(6)
    if kind == 0:
        g.add_setup(f"self.{name} = 0")
        path, line = f"self.{name}", f"self.{name} += 1"
    elif kind == 1:
        g.add_setup(f"self.{name} = {{'n': 0}}")
        path, line = f"self.{name}['n']", f"self.{name}['n'] += 1"
    elif kind == 2:
        g.add_top(f"{name} = [0]")
        path, line = f"{name}[0]", f"{name}[0] += 1"
    elif kind == 3:
        g.add_top(f"{name} = 0")
        path, line = name, f"global {name}\n{name} += 1"
        g.statement(line, tried=False)
        line = "pass"
    elif kind == 4:
        g.add_setup(f"self.{name} = 0.5")
        path, line = f"self.{name}", f"self.{name} = self.{name} * 2"
    else:
        g.add_member(f"{name} = 0")
        path, line = f"self.{name}", f"type(self).{name} += 1"
    g.statement(line, tried=kind != 5)
    if g.chance.random() < 0.5:
        found = g.set(f"{main} + {path}")
        if found:
            g.give(found)
    if g.chance.random() < 0.3:
        g.give(path)


@feature("2 value remembered", 1.5)
def remembered(g: Builder) -> None:
    """A result, shape or argument that the method leaves on the module or in a container."""
    main, name = g.main(), g.name("last")
    g.add_setup(f"self.{name} = None\nself.{name}_list = []\nself.{name}_dict = {{}}")
    lines = [
        f"self.{name} = {main}",
        f"self.{name} = {main}.shape[0]",
        f"self.{name} = tuple({main}.shape)",
        f"self.{name}_list.append({main} * 2)",
        f"self.{name}_list.append({main}.shape[0])",
        f"self.{name}_dict['k'] = {main}.T",
        f"self.{name}_dict[{main}.shape[0]] = {main}.sum()",
        f"self.{name} = ({main}, {main}[0])",
        f"self.{name}_list = [{main}, 'text']",
        f"self.{name}_list[:] = [{main}]",
        f"self.{name}_dict.update(a={main} + 1, b=2)",
        f"self.{name} = {main}.dtype",
        f"self.{name} = {{'x': {main}}}",
        f"self.{name} = not self.{name}",
    ]
    for line in g.chance.sample(lines, g.chance.randint(1, 2)):
        g.statement(line)
    if g.chance.random() < 0.4:
        g.give(f"self.{name}")
    if g.chance.random() < 0.3:
        g.give(f"len(self.{name}_list)")


@feature("2 state read again", 1.0)
def read_again(g: Builder) -> None:
    """A value that an earlier call left is used by the next."""
    main, name = g.main(), g.name("memory")
    g.add_setup(f"self.{name} = []")
    given = g.set(f"{main} + (self.{name}[-1] if self.{name} else 0.0)")
    g.statement(
        g.chance.choice(
            [
                f"self.{name}.append({main}.mean())",
                f"self.{name}.insert(0, {main}.sum())",
                f"self.{name}[:] = [{main}.sum()]",
            ]
        )
    )
    if given:
        g.give(given)


@feature("2 attribute of several types", 0.7)
def several_types(g: Builder) -> None:
    """An attribute that is assigned an argument of different types."""
    main, name = g.main(), g.name("count")
    value = g.add_choice("1", "2", "True", "2.5", "None", "'text'", "(1, 2)", "[3]", "1 << 70", "-1")
    g.add_setup(f"self.{name} = 0")
    g.statement(f"self.{name} = {value}")
    found = g.set(f"{main} + 1.0")
    if found:
        g.give(found)


@feature("2 argument written", 1.0)
def argument_written(g: Builder) -> None:
    """A container argument that the method changes."""
    main = g.main()
    kind = g.chance.choice(["[1.0, 2.0]", "{'k': 1.0, 'j': 2.0}", "[tensor((4,), 1), tensor((4,), 2)]"])
    name = g.add_argument(lambda chance, batch, number: kind)
    if kind.startswith("{"):
        g.statement(
            g.chance.choice(
                [
                    f"{name}['new'] = {main}",
                    f"{name}['k'] = 5",
                    f"{name}.pop('k')",
                    f"del {name}['j']",
                    f"{name}.clear()",
                ]
            )
        )
    else:
        g.statement(
            g.chance.choice(
                [
                    f"{name}.append({main})",
                    f"{name}[0] = {main}.sum()",
                    f"{name}.pop()",
                    f"{name}.reverse()",
                    f"{name}.extend({name})",
                    f"{name} += [{main}]",
                ]
            )
        )
    if g.chance.random() < 0.5:
        g.give(name)
