"""Section 3: values that are not graph inputs and therefore not checked: metadata, identity, aliases."""

from __future__ import annotations

from benchmarks.fuzz.builder import BATCH, Builder
from benchmarks.fuzz.features import feature

#: Properties of a tensor that is not computed with; each gives a number.
FACTS = (
    "{t}.shape[0]",
    "{t}.size(-1)",
    "len({t})",
    "{t}.dim()",
    "{t}.ndim",
    "{t}.numel()",
    "{t}.stride(0)",
    "{t}.stride()[-1]",
    "{t}.element_size()",
    "{t}.storage_offset()",
    "float({t}.requires_grad)",
    "float({t}.is_contiguous())",
    "(2.0 if {t}.dtype == torch.float32 else 3.0)",
    "(2.0 if {t}.is_floating_point() else 3.0)",
    "(2.0 if {t}.device.type == 'cpu' else 3.0)",
    "(2.0 if {t}.shape[0] == 3 else 5.0)",
    "(2.0 if {t}.shape[0] > 2 else 5.0)",
    "float({t}.is_leaf)",
    "(2.0 if {t}.grad is None else 3.0)",
    "(2.0 if {t}.layout == torch.strided else 3.0)",
    "(2.0 if isinstance({t}, torch.nn.Parameter) else 3.0)",
    "(2.0 if type({t}) is torch.Tensor else 3.0)",
    "float({t}.is_inference())",
    "sum({t}.shape)",
    "{t}.nelement()",
    "{t}.itemsize",
)
SHAPES = ("(3, 4)", "(2, 4)", "(5, 4)", "(4,)", "(3, 2, 2)", "(1, 7)", "(0, 4)")
VARIED = (
    "tensor((3, 4), 1)",
    "tensor((3, 4), 1)",
    "tensor((2, 4), 2)",
    "tensor((7, 4), 3)",
    'tensor((3, 4), 1, "float64")',
    'tensor((3, 4), 1, "int64")',
    'tensor((3, 4), 1, "float32", "turned")',
    'tensor((3, 4), 1, "float32", "grad")',
    'tensor((3, 4), 1, "float32", "step")',
    'tensor((3, 4), 1, "float32", "offset")',
    'tensor((3, 4), 1, "float32", "inference")',
    "torch.nn.Parameter(tensor((3, 4), 1))",
    "tensor((5,), 4)",
    "tensor((3, 1, 4), 4)",
)


def _use(g: Builder, expression: str) -> None:
    fact = g.chance.choice(FACTS).format(t=expression)
    main = g.main()
    line = g.chance.choice([f"{main} * {fact}", f"{main} + {fact}", f"{main} - float({fact})"])
    name = g.set(line)
    if name:
        g.give(name)


def _values(g: Builder, wrapped: str = "{}"):  # type: ignore[no-untyped-def]
    def value(chance, batch, number):  # type: ignore[no-untyped-def]
        found = VARIED[0] if number == 0 else chance.choice(VARIED)
        return wrapped.format(found)

    return value


@feature("3 metadata of an argument", 2.0)
def argument(g: Builder) -> None:
    """A tensor argument of which only metadata is used."""
    g.main()
    name = g.add_argument(_values(g))
    if g.chance.random() < 0.8:
        g.hidden.add(name)
    for _ in range(g.chance.randint(1, 2)):
        _use(g, name)


@feature("3 metadata of an item", 1.0)
def item(g: Builder) -> None:
    """An item of a list, tuple or dict argument of which only metadata is used."""
    g.main()
    form, access = g.chance.choice(
        [("[{}]", "[0]"), ("({}, 1.0)", "[0]"), ("{{'k': {}}}", "['k']"), ("[[{}], 2]", "[0][0]")]
    )
    name = g.add_argument(_values(g, form))
    _use(g, f"{name}{access}")


@feature("3 metadata of an attribute", 1.0)
def attribute(g: Builder) -> None:
    """A tensor attribute, list of tensors or buffer of which only metadata is used."""
    g.main()
    name = g.name("ghost")
    kind = g.chance.randrange(4)
    if kind == 0:
        g.add_setup(f"self.{name} = torch.ones(3, 4)")
        path = f"self.{name}"
    elif kind == 1:
        g.add_setup(f"self.{name} = [torch.ones(3, 4), torch.ones(2)]")
        path = f"self.{name}[0]"
    elif kind == 2:
        g.add_setup(f"self.register_buffer('{name}', torch.ones(3, 4))")
        path = f"self.{name}"
    else:
        g.add_setup(f"self.{name} = {{'k': torch.ones(3, 4)}}")
        path = f"self.{name}['k']"
    _use(g, path)
    for other in g.chance.sample(VARIED[2:], 2):
        if kind != 2 or "Parameter" not in other:
            g.add_edit("3 ghost replaced", f"m{path[4:]} = {other}")


@feature("3 metadata of a global", 1.0)
def of_global(g: Builder) -> None:
    """A global tensor of which only metadata is used."""
    g.main()
    name = g.name("GHOST")
    g.add_top(f"{name} = torch.ones(3, 4)")
    g.hidden.add(name)
    _use(g, name)
    for other in g.chance.sample(VARIED[2:], 2):
        g.add_edit("3 global ghost replaced", f"s.{name} = {other}")
    g.add_rewrite("3 global ghost in the file", f"{name} = torch.ones(3, 4)", f"{name} = torch.ones(6, 4)")


@feature("3 identity of arguments", 2.0)
def identity(g: Builder) -> None:
    """Branches on whether two arguments are one object."""
    x, y = g.add_tensor(), g.add_tensor()
    test = g.chance.choice([f"{x} is {y}", f"{x} is not {y}", f"id({x}) == id({y})", f"any({x} is q for q in [{y}])"])
    name = g.set(f"{x} * 2.0 if {test} else {x} + {y} * 0.5")
    if name:
        g.give(name)
    g.wants["alias"] = (x, y)


@feature("3 identity with an attribute", 1.5)
def identity_attribute(g: Builder) -> None:
    """Branches on whether an argument is an attribute of the module, or two attributes are one."""
    x = g.add_tensor(shape=(3, 4))
    name = g.name("table")
    kind = g.chance.choice([f"self.{name} = torch.ones(3, 4)", f"self.register_buffer('{name}', torch.ones(3, 4))"])
    g.add_setup(kind)
    given = g.set(f"{x} * 2.0 if {x} is self.{name} else {x} - 1.0")
    if given:
        g.give(given)
    g.wants["argument from"] = (x, f"m.{name}")


@feature("3 one list twice", 1.0)
def one_list(g: Builder) -> None:
    """Two list arguments that may be one list, one of them written."""

    def value(chance, batch, number):  # type: ignore[no-untyped-def]
        return f"[tensor(({batch}, 4), {chance.randrange(50)}), tensor(({batch}, 4), {chance.randrange(50)})]"

    x, y = g.add_argument(value), g.add_argument(value)
    g.statement(g.chance.choice([f"{x}.append({y}[0] * 2)", f"{x}[0] = {y}[1] + 1", f"{x}[0].add_({y}[0])", "pass"]))
    name = g.set(
        g.chance.choice([f"{y}[-1] + {x}[0]", f"{y}[-1] * len({y})", f"{y}[0] * (2.0 if {x} is {y} else 3.0)"])
    )
    if name:
        g.give(name)
    g.wants["alias"] = (x, y)


@feature("3 written alias of a weight", 1.5)
def written_alias(g: Builder) -> None:
    """An argument that is written, and that may share memory with a weight or buffer that is read."""
    x = g.add_tensor(shape=(3, 4))
    name = g.name("store")
    kind = g.chance.choice(
        [
            f"self.register_buffer('{name}', torch.ones(3, 4))",
            f"self.{name} = torch.nn.Parameter(torch.ones(3, 4))",
            f"self.{name} = torch.ones(3, 4)",
        ]
    )
    g.add_setup(kind)
    before = g.set(f"self.{name} * 3.0") if g.chance.random() < 0.5 else None
    g.statement(g.chance.choice([f"{x}.add_(1)", f"{x}.mul_(2)", f"{x}[0] = 5.0"]))
    after = g.set(f"self.{name} * 2.0")
    g.give(*(found for found in (before, after) if found))
    g.wants["argument from"] = (
        x,
        g.chance.choice([f"m.{name}", f"m.{name}.data", f"m.{name}.detach()", f"m.{name}.view(3, 4)"]),
    )


@feature("3 overlapping arguments", 1.5)
def overlapping(g: Builder) -> None:
    """Two arguments that may share memory, one of them written."""
    x, y = g.add_tensor(), g.add_tensor()
    before = g.set(f"{y} * 3.0") if g.chance.random() < 0.5 else None
    g.statement(g.chance.choice([f"{x}.add_(1)", f"{x}.mul_(2)", f"{x}[0] = 5.0", f"{y}.sub_(1)"]))
    after = g.set(f"{y} * 2.0 + {x}")
    g.give(*(found for found in (before, after) if found))
    g.wants["alias"] = (x, y)


@feature("3 dims compared", 2.0)
def dims(g: Builder) -> None:
    """Two dims compared or combined; one of the tensors may not be an input."""
    x = g.add_tensor(shape=(BATCH, 4), layouts=("plain", "step", "turned"))
    y = g.add_tensor(
        shape=g.chance.choice([(BATCH, 4), (BATCH, BATCH), (5, 4), (BATCH,), (4, BATCH)]),
        layouts=("plain", "step", "turned", "offset"),
    )
    test = g.chance.choice(
        [
            f"{x}.shape[0] == {y}.shape[0]",
            f"{x}.size(0) < {y}.size(-1)",
            f"{x}.shape == {y}.shape",
            f"{x}.stride(0) == {y}.stride(0)",
            f"{x}.stride(0) > {y}.shape[0]",
            f"{x}.numel() == {y}.numel()",
            f"{x}.shape[0] * 2 > {y}.shape[0] + 1",
            f"{y}.shape[0] % 2 == 0",
            f"{y}.is_contiguous()",
        ]
    )
    name = g.set(f"{x} * 2.0 if {test} else {x} - 1.0")
    if name:
        g.give(name)


@feature("3 torch function mode", 0.3)
def function_mode(g: Builder) -> None:
    """A mode entered around a later call."""
    g.add_top(
        "class Doubling(torch.overrides.TorchFunctionMode):\n"
        "    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
        "        found = func(*args, **(kwargs or {}))\n"
        "        return found * 2 if func is torch.relu else found"
    )
    name = g.set(f"torch.relu({g.main()})")
    if name:
        g.give(name)
    g.wants["around"] = "s.Doubling()"
