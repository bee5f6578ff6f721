"""Section 2: submodules, and changes of them."""

from __future__ import annotations

from benchmarks.fuzz.builder import Builder
from benchmarks.fuzz.features import feature

_CHILD = """class {kind}(torch.nn.Module):
    factor = 2.0
    def __init__(self, size=4):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        self.gain = 1.5
    def forward(self, x):
        return self.extra(self.linear(x)) * self.gain
    def extra(self, x):
        return x * self.factor
"""


def child_class(g: Builder) -> str:
    """Add a class of submodules."""
    kind = g.name("Child")
    g.add_top(_CHILD.format(kind=kind))
    g.add_rewrite("5 child's code", "return x * self.factor", "return x * self.factor + 1.0")
    g.add_rewrite("5 class attribute in the file", "    factor = 2.0", "    factor = 4.0")
    g.add_edit("5 method patched", f"s.{kind}.extra = lambda self, x: x - 1.0")
    g.add_edit("5 class attribute changed", f"s.{kind}.factor = 5.0")
    return kind


@feature("2 library submodule", 2.0)
def library(g: Builder) -> None:
    """One of torch's modules."""
    main, name = g.main(), g.name("layer")
    form = g.chance.choice(
        [
            "torch.nn.Linear(4, 4)",
            "torch.nn.Linear(4, 4, bias=False)",
            "torch.nn.LayerNorm(4)",
            "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())",
            "torch.nn.BatchNorm1d(4)",
            "torch.nn.Dropout(0.5)",
            "torch.nn.GELU()",
            "torch.nn.RMSNorm(4)",
            "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.2), torch.nn.LayerNorm(4))",
            "torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))",
        ]
    )
    g.add_setup(f"self.{name} = {form}")
    if g.chance.random() < 0.7:
        g.wants["eval"] = True
    found = g.set(f"self.{name}({main})")
    if found:
        g.give(found)
    _edits(g, name)
    if "Linear(4, 4)" in form and form.startswith("torch.nn.Linear"):
        g.add_edit("2 wrapped", f"m.{name} = torch.nn.Sequential(m.{name}, torch.nn.Tanh())")
        g.add_edit("2 bias deleted", f"m.{name}.bias = None")
        g.add_edit("2 sizes changed", f"m.{name}.weight = torch.nn.Parameter(tensor((2, 4), 3)); m.{name}.bias = None")


def _edits(g: Builder, name: str) -> None:
    g.add_edit("2 child replaced", f"torch.manual_seed(3); m.{name} = torch.nn.Linear(4, 4)")
    g.add_edit("2 child replaced", f"m.{name} = torch.nn.Identity()")
    g.add_edit("2 forward on the instance", f"m.{name}.forward = lambda x: x * 3.0")
    g.add_edit("2 hook added", f"m.{name}.register_forward_hook(lambda module, args, out: out * 2.0)")
    g.add_edit("2 pre-hook added", f"m.{name}.register_forward_pre_hook(lambda module, args: (args[0] + 1.0,))")
    g.add_edit("2 train", "m.train(not m.training)")
    g.add_edit("2 train of a child", f"m.{name}.train(not m.{name}.training)")


@feature("2 own submodule", 2.0)
def own(g: Builder) -> None:
    """A submodule of a class in the file."""
    main, kind, name = g.main(), child_class(g), g.name("child")
    g.add_setup(f"self.{name} = {kind}()")
    found = g.set(f"self.{name}({main})")
    if found:
        g.give(found)
    _edits(g, name)
    g.add_edit("2 attribute of a child", f"m.{name}.gain = 3.0")
    g.add_edit("2 method on the instance", f"m.{name}.extra = lambda x: x * 7.0")
    g.add_edit("2 grandchild replaced", f"torch.manual_seed(9); m.{name}.linear = torch.nn.Linear(4, 4)")
    g.add_edit("2 class of a child", f"m.{name}.__class__ = type('Other', (s.{kind},), {{'factor': 9.0}})")


@feature("2 list of submodules", 1.5)
def listed(g: Builder) -> None:
    """A ModuleList, ModuleDict or plain list of submodules, some of them shared."""
    main, name = g.main(), g.name("layers")
    kind = child_class(g) if g.chance.random() < 0.5 else "torch.nn.Linear"
    make = f"{kind}()" if kind != "torch.nn.Linear" else "torch.nn.Linear(4, 4)"
    form = g.chance.choice(
        [
            "torch.nn.ModuleList([{0}, {0}])",
            "torch.nn.ModuleList([{0}] * 2)",
            "torch.nn.ModuleDict({{'a': {0}, 'b': {0}}})",
            "[{0}, {0}]",
            "{{'a': {0}, 'b': {0}}}",
        ]
    ).format(make)
    g.add_setup(f"self.{name} = {form}")
    values = f"self.{name}.values()" if "'a'" in form else f"self.{name}"
    out = g.name("h")
    g.statement(f"{out} = {main}")
    if g.statement(f"for layer in {values}:\n    {out} = layer({out})"):
        g.give(out)
    access = f"m.{name}['a']" if "'a'" in form else f"m.{name}[0]"
    g.add_edit("2 child replaced", f"torch.manual_seed(4); {access} = torch.nn.Linear(4, 4)")
    if "List" in form or form.startswith("["):
        g.add_edit("2 child appended", f"torch.manual_seed(4); m.{name}.append(torch.nn.Linear(4, 4))")
        g.add_edit("2 children reordered", f"m.{name}[0], m.{name}[1] = m.{name}[1], m.{name}[0]")
    g.add_edit("2 weights of a child", f"{access}.{'linear.' if kind != 'torch.nn.Linear' else ''}weight.data.mul_(2)")
    g.add_edit("2 hook added", f"{access}.register_forward_hook(lambda module, args, out: out * 2.0)")


@feature("2 adapters", 2.0)
def adapters(g: Builder) -> None:
    """Named submodules of which the method uses some, and asks for others; neighbours that it does not use."""
    main, name = g.main(), g.name("adapters")
    g.add_setup(
        f"self.{name} = torch.nn.ModuleDict({{'a': torch.nn.Linear(4, 4), 'b': torch.nn.Linear(4, 4)}})\n"
        f"self.{name}_scale = {{'a': 2.0, 'b': 3.0}}\n"
        f"self.{name}_active = ['a']\n"
        f"self.{name}_rest = torch.nn.Linear(4, 4)"
    )
    out, keys = g.name("h"), g.name("keys")
    asked = g.chance.choice(["'c' in self.{0}.keys()", "'b' in self.{0}", "'c' in self.{0}_scale", "False"])
    counted = g.chance.choice(
        [
            f"len({keys})",
            f"len(self.{name}_rest.weight)",
            f"sum(1 for _ in self.{name}.children())",
            f"len([k for k in {keys}])",
            f"self.{name}_scale.get('b', 5.0)",
            f"(2 if hasattr(self, '{name}_other') else 3)",
            "1",
            "1",
        ]
    )
    g.statement(f"{out} = {main}\n{keys} = self.{name}.keys()")
    loop = (
        f"for key in self.{name}_active:\n    if key not in {keys}:\n        continue\n"
        f"    {out} = self.{name}[key]({out}) * self.{name}_scale[key]\n"
        f"if {asked.format(name)}:\n    {out} = {out} + 1.0\n{out} = {out} * {counted}"
    )
    if g.statement(loop):
        g.give(out)
    new = "torch.nn.Linear(4, 4)"
    for label, text in (
        ("2 adapter added", f"torch.manual_seed(3); m.{name}['c'] = {new}; m.{name}_scale['c'] = 4.0"),
        ("2 adapter renamed", f"m.{name}['d'] = m.{name}.pop('b'); m.{name}_scale['d'] = m.{name}_scale.pop('b')"),
        ("2 adapter removed", f"del m.{name}['b']"),
        ("2 adapter replaced", f"m.{name}['b'] = torch.nn.Identity()"),
        ("2 adapter converted", f"m.{name}['b'].double()"),
        ("2 adapter moved first", f"m.{name}['a'] = m.{name}.pop('a'); q = m.{name}.pop('b'); m.{name}['b'] = q"),
        ("2 adapter chosen", f"m.{name}_active = ['b', 'x']"),
        ("2 weights of adapters tied", f"m.{name}['b'].weight = m.{name}['a'].weight"),
        ("2 weights of adapters swapped", f"m.{name}['a'], m.{name}['b'] = m.{name}['b'], m.{name}['a']"),
        ("2 neighbour added", f"torch.manual_seed(4); m.{name}_other = {new}"),
        ("2 neighbour removed", f"del m.{name}_rest"),
        ("2 neighbour replaced", f"m.{name}_rest = torch.nn.Linear(4, 5)"),
    ):
        g.add_edit(label, text)


@feature("2 tied weights", 1.0)
def tied(g: Builder) -> None:
    """An embedding tied to a projection, or a parameter with two names."""
    one, two = g.name("embed"), g.name("head")
    g.add_setup(
        f"self.{one} = torch.nn.Embedding(6, 4)\nself.{two} = torch.nn.Linear(4, 6, bias=False)\nself.{two}.weight = self.{one}.weight"
    )
    ids = g.add_tensor(dtype="int64", shape=("B", 2))
    found = g.set(f"self.{two}(self.{one}({ids}))")
    if found:
        g.give(found)
    g.add_edit("2 untied", f"m.{two}.weight = torch.nn.Parameter(tensor((6, 4), 8))")
    g.add_edit("2 weights in place", f"m.{one}.weight.data.mul_(3)")
    g.add_edit("2 tied again", f"m.{two}.weight = m.{one}.weight")


@feature("2 module as argument", 2.0)
def argument(g: Builder) -> None:
    """A module that is passed, alone or in a container."""
    main, kind = g.main(), child_class(g)
    g.add_top(f"torch.manual_seed(5)\n{kind}_made = [{kind}() for _ in range(3)]\n{kind}_made[1].gain = 2.5")
    form, access = g.chance.choice([("{}", ""), ("[{}]", "[0]"), ("{{'k': {}}}", "['k']"), ("(1, {})", "[1]")])
    which = ["0", "1", "2"]

    def value(chance, batch, number):  # type: ignore[no-untyped-def]
        return form.format(f"s.{kind}_made[{which[0] if number == 0 else chance.choice(which)}]")

    name = g.add_argument(value)
    found = g.set(
        g.chance.choice(
            [f"{name}{access}({main})", f"{name}{access}.linear({main})", f"{main} @ {name}{access}.linear.weight"]
        )
    )
    if found:
        g.give(found)


@feature("2 hooks", 1.0)
def hooks(g: Builder) -> None:
    """Hooks that exist from the start."""
    main, name = g.main(), g.name("hooked")
    g.add_top(f"def {name}_hook(module, args, out):\n    return out + 1.0")
    g.add_setup(
        f"self.{name} = torch.nn.Linear(4, 4)\nself.{name}_handle = self.{name}.register_forward_hook({name}_hook)"
    )
    found = g.set(f"self.{name}({main})")
    if found:
        g.give(found)
    g.add_edit("2 hook removed", f"m.{name}_handle.remove()")
    g.add_edit("5 hook patched", f"s.{name}_hook.__code__ = (lambda module, args, out: out - 5.0).__code__")
    g.add_rewrite("5 hook in the file", "return out + 1.0", "return out + 2.0")
    g.add_edit(
        "5 global hook",
        "handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 2.0 if isinstance(module, torch.nn.Linear) else None)",
        scope="process",
    )


@feature("2 own parameters", 2.0)
def parameters(g: Builder) -> None:
    """Parameters and buffers of the module itself."""
    main, name = g.main(), g.name("weight")
    form = g.chance.choice(
        [
            f"self.{name} = torch.nn.Parameter(torch.randn(4, 4))",
            f"self.register_buffer('{name}', torch.randn(4, 4))",
            f"self.register_buffer('{name}', torch.randn(4, 4), persistent=False)",
            f"self.{name} = torch.nn.Parameter(torch.randn(4, 4).T, requires_grad=False)",
            f"self.register_parameter('{name}', torch.nn.Parameter(torch.randn(8, 4)[::2]))",
        ]
    )
    g.add_setup(form)
    found = g.set(
        g.chance.choice(
            [
                f"{main} @ self.{name}",
                f"torch.nn.functional.linear({main}, self.{name})",
                f"{main} @ self.{name}.T + self.{name}[0]",
            ]
        )
    )
    if found:
        g.give(found)
    if g.chance.random() < 0.2:
        g.give(f"self.{name}")
    if g.chance.random() < 0.2:
        g.give(f"self.{name}[0]")
    new = "torch.nn.Parameter(tensor((4, 4), 6))" if "arameter" in form else "tensor((4, 4), 6)"
    g.add_edit("2 parameter or buffer replaced", f"m.{name} = {new}")
    g.add_edit(
        "2 parameter or buffer replaced",
        f"m._buffers['{name}'] = tensor((4, 4), 6)"
        if "buffer" in form
        else f"m._parameters['{name}'] = torch.nn.Parameter(tensor((4, 4), 6))",
    )
    g.add_edit("2 parameter or buffer deleted", f"del m.{name}; m.{name} = tensor((4, 4), 6)")
