"""Containers, control flow, names, and other shapes of a method."""

from __future__ import annotations

from benchmarks.fuzz.builder import BATCH, Builder
from benchmarks.fuzz.features import feature


@feature("containers", 2.0)
def container(g: Builder) -> None:
    """Arguments in containers."""
    kind = g.name("Pair")
    g.add_top(
        g.chance.choice(
            [
                f"class {kind}(typing.NamedTuple):\n    left: typing.Any\n    right: typing.Any",
                f"@dataclasses.dataclass\nclass {kind}:\n    left: typing.Any\n    right: typing.Any",
                f"class {kind}:\n    def __init__(self, left, right):\n        self.left, self.right = left, right",
                f"{kind} = collections.namedtuple('{kind}', 'left right')",
            ]
        )
    )
    form, left, right = g.chance.choice(
        [
            ("[{0}, {1}]", "[0]", "[1]"),
            ("({0}, {1})", "[0]", "[1]"),
            ("{{'l': {0}, 'r': {1}}}", "['l']", "['r']"),
            ("s." + kind + "({0}, {1})", ".left", ".right"),
            ("[({0},), {{'r': {1}}}]", "[0][0]", "[1]['r']"),
            ("{{'l': [{0}, 2.0], 'r': s." + kind + "({1}, None)}}", "['l'][0]", "['r'].left"),
        ]
    )

    def value(chance, batch, number):  # type: ignore[no-untyped-def]
        items = [f"tensor(({batch}, 4), {chance.randrange(90)})" for _ in range(2)]
        return form.format(*items)

    name = g.add_argument(value)
    found = g.set(f"{name}{left} * 2.0 + {name}{right}")
    if found:
        g.give(found)
    if g.chance.random() < 0.4:
        g.give(g.chance.choice([name, f"{name}{left}", f"{name}{left}.T"]))
    if g.chance.random() < 0.3:
        g.give(f"{kind}({found}, {name})")
    if g.chance.random() < 0.3:
        g.statement(f"{name}{left}.add_(1.0)")


@feature("control flow", 2.0)
def control(g: Builder) -> None:
    """Branches and loops over scalars, shapes and flags."""
    main, out = g.main(), g.name("h")
    g.statement(f"{out} = {main}")
    kind = g.chance.randrange(10)
    if kind == 0:
        n = g.add_choice("2", "3", "0", "1", "5")
        text = f"for i in range({n}):\n    {out} = {out} + i"
    elif kind == 1:
        text = f"if {main}.shape[0] > {g.chance.randint(1, 4)}:\n    {out} = {out} * 2\nelse:\n    {out} = {out} - 1"
    elif kind == 2:
        flag = g.add_choice("True", "False", "1", "None", "''", "'x'")
        text = f"if {flag}:\n    {out} = {out} * 2\nelse:\n    {out} = {out} - 1"
    elif kind == 3:
        flag = g.add_choice("0.5", "1.5", "-2.0", "float('inf')", "2", "True")
        text = f"{out} = {out} * {flag} if {flag} > 0 else {out} - {flag}"
    elif kind == 4:
        text = f"k = 0\nwhile k < {main}.shape[0]:\n    {out} = {out} + k\n    k += 1"
    elif kind == 5:
        text = f"for row in {main}:\n    {out} = {out} + row"
    elif kind == 6:
        flag = g.add_choice("None", "tensor((4,), 3)", "2.0", default="None")
        text = f"if {flag} is not None:\n    {out} = {out} + {flag}"
    elif kind == 7:
        mode = g.add_choice("'a'", "'b'", "'c'")
        text = f"{out} = {{'a': {out} * 2, 'b': {out} - 1}}.get({mode}, {out})"
    elif kind == 8:
        text = f"try:\n    {out} = {out} + {{}}['missing']\nexcept KeyError:\n    {out} = {out} * 3"
    else:
        text = f"if {main}.shape[0] == {g.chance.randint(1, 4)}:\n    return {out} * 2"
    if g.statement(text, tried=kind != 9):
        g.give(out)


@feature("4 names", 4.0)
def odd_names(g: Builder) -> None:
    """Arguments, attributes, globals and closures with names that other code uses."""
    g.wants["odd names"] = 0.9
    main = g.main()
    parts = []
    for _ in range(g.chance.randint(2, 4)):
        kind = g.chance.randrange(5)
        name = g.name("n")
        value = f"{g.chance.randint(2, 9)}.{g.chance.randint(1, 9)}"
        if kind < 2:
            g.add_choice(
                value,
                "1.0",
                "0.5",
                name=name,
                default=value if g.chance.random() < 0.6 else None,
                is_keyword=g.chance.random() < 0.3,
            )
            parts.append(name)
        elif kind == 2:
            g.add_setup(f"self.{name} = {value}")
            parts.append(f"self.{name}")
        elif kind == 3:
            g.add_top(f"{name} = {value}")
            parts.append(name)
        else:
            g.add_tensor(name=name, shape=g.chance.choice([(4,), (BATCH, 4)]))
            parts.append(name)
    found = g.set(" + ".join([main, *(f"{part} * {number + 2}.0" for number, part in enumerate(parts))]))
    if found:
        g.give(found)
    if g.chance.random() < 0.15:
        from benchmarks.fuzz import names

        g.method = g.chance.choice([names.odd(g.chance), "forward", "__call__", "compute"])
        if g.method in names.NEEDED or (
            g.method in dir(__import__("torch").nn.Module) and g.method not in ("forward",)
        ):
            g.method = "compute"
    if g.chance.random() < 0.1:
        g.wants["self name"] = g.chance.choice(["this", "me", "_", "x_self", "instance", "frame"])


@feature("6 no tensor inputs", 1.0)
def no_inputs(g: Builder) -> None:
    """Tensors that the method makes itself, from scalars only."""
    if g.arguments or g.body:
        return
    size = g.add_choice("3", "2", "5")
    found = g.set(
        g.chance.choice(
            [
                f"torch.ones({size}, 4)",
                f"torch.arange({size}) * 2.0",
                f"torch.zeros(4) + {size}",
                "torch.ones(3, 4) * 2",
            ]
        )
    )
    if found:
        g.give(found)


@feature("6 generator", 0.3)
def generator(g: Builder) -> None:
    """A generator function."""
    g.statement(f"yield {g.main()} * 2", tried=False)
    g.wants["generator"] = True


@feature("6 variadic", 0.7)
def variadic(g: Builder) -> None:
    """`*args` and `**kwargs` inside a helper, and odd signatures."""
    main, name = g.main(), g.name("spread")
    g.add_top(f"def {name}(first, *rest, by=2.0, **more):\n    return sum(rest, first) * by + len(more)")
    found = g.set(
        g.chance.choice(
            [
                f"{name}({main}, {main}, {main} * 2)",
                f"{name}({main}, by=3.0, extra=1)",
                f"{name}(*[{main}, {main}], **{{'by': 4.0}})",
            ]
        )
    )
    if found:
        g.give(found)


@feature("6 tensor subclass", 0.5)
def subclass(g: Builder) -> None:
    """A weight or argument of a subclass of Tensor."""
    main, kind, name = g.main(), g.name("Kind"), g.name("sub")
    g.add_top(f"class {kind}(torch.Tensor):\n    pass")
    if g.chance.random() < 0.5:
        g.add_setup(f"self.{name} = torch.ones(4).as_subclass({kind})")
        found = g.set(f"{main} * self.{name}")
    else:
        arg = g.add_argument(
            lambda chance, batch, number: (
                f"tensor(({batch}, 4), 3).as_subclass(s.{kind})" if number % 2 == 0 else f"tensor(({batch}, 4), 3)"
            )
        )
        found = g.set(f"{main} * {arg}" if g.space()[arg].shape == g.space()[main].shape else f"{arg} * 2")
    if found:
        g.give(found)


@feature("random numbers", 0.5)
def random_numbers(g: Builder) -> None:
    """Operators that use the random generator."""
    main = g.main()
    found = g.set(
        g.chance.choice(
            [
                f"torch.rand_like({main}) + {main}",
                f"torch.nn.functional.dropout({main}, 0.5, True)",
                f"torch.randn(4) * {main}",
                f"torch.bernoulli({main}.sigmoid())",
            ]
        )
    )
    if found:
        g.give(found)


@feature("autocast", 0.5)
def autocast(g: Builder) -> None:
    """Autocast within the method."""
    main, out = g.main(), g.name("h")
    g.statement(f"{out} = {main}")
    if g.statement(f"with torch.autocast('cpu', dtype=torch.bfloat16):\n    {out} = {out} @ {out}.T"):
        g.give(out)


@feature("closure", 1.0)
def closure(g: Builder) -> None:
    """Functions, lambdas, comprehensions within the method."""
    main = g.main()
    found = g.set(
        g.chance.choice(
            [
                f"(lambda p, q={main}: p * 2 + q)({main})",
                f"sum([{main} * i for i in range(3)])",
                f"list(map(lambda p: p * 2, [{main}]))[0]",
                f"max([{main}.sum(), {main}.mean()], key=lambda t: t.dim())",
                f"[p + q for p, q in zip([{main}], [{main} * 2])][0]",
                f"{{k: {main} * v for k, v in dict(a=1, b=2).items()}}['b']",
                f"sorted([3, 1, 2], reverse=True)[0] * {main}",
                f"functools.partial(torch.add, {main}, alpha=2)({main})",
            ]
        )
    )
    if found:
        g.give(found)


@feature("layouts", 2.0)
def layouts(g: Builder) -> None:
    """Arguments of all layouts and dtypes."""
    shape = g.chance.choice([(BATCH, 4), (BATCH, 4), (4,), (BATCH, 2, 2), (BATCH, BATCH), (), (1, 4)])
    dtype = g.chance.choice(["float32"] * 5 + ["float64", "int64", "bool", "bfloat16", "complex64"])
    name = g.add_tensor(
        shape=shape,
        dtype=dtype,
        layouts=("plain", "turned", "step", "offset", "expanded", "overlapping", "inference", "grad"),
    )
    found = g.set(
        g.chance.choice(
            [
                f"{name} * 2",
                f"{name} + {name}",
                f"{name}.sum()",
                f"{name}.reshape(-1)",
                f"{name}.T",
                f"{name}.contiguous()",
                f"{name}.flatten()[:2]",
                f"{name}.view(-1)",
            ]
        )
    )
    if found:
        g.give(found)
    if g.chance.random() < 0.3:
        g.give(name)


@feature("6 stars", 0.7)
def stars(g: Builder) -> None:
    """`*rest` and `**more`, and a slash, in the method's own signature."""
    if any(item.stars for item in g.arguments):
        return
    main, name = g.main(), g.name("rest")
    if g.chance.random() < 0.5:
        g.add_argument(
            lambda chance, batch, number: chance.choice(
                ["[tensor((4,), 1), tensor((4,), 2)]", "[2.0, 3.0]", "[]", "[tensor((4,), 5)]"]
            ),
            name=name,
            stars="*",
        )
        use = f"sum({name}, {main})"
    else:
        g.add_argument(
            lambda chance, batch, number: chance.choice(
                ["{'q': tensor((4,), 1)}", "{'q': 2.0, 'r': 1}", "{'r': 3.0, 'q': 1.0}", "{'self_': 1.0}"]
            ),
            name=name,
            stars="**",
        )
        use = g.chance.choice(
            [f"{main} + len({name})", f"{main} * {name}.get('q', 2.0)", f"sum({name}.values(), {main})"]
        )
    found = g.set(use)
    if found:
        g.give(found)
    if g.chance.random() < 0.3:
        g.give(name)
    if g.chance.random() < 0.3:
        g.wants["slash"] = g.chance.randint(1, 3)


@feature("6 odd argument", 1.0)
def odd_argument(g: Builder) -> None:
    """Arguments of unusual types."""
    main, kind = g.main(), g.name("Kind")
    g.add_top(
        f"import decimal\nimport fractions\nimport pathlib\nimport numpy\nclass {kind}(enum.Enum):\n    A = 1.5\n    B = 2.5"
    )
    values, use = g.chance.choice(
        [
            (("s.decimal.Decimal('2.5')", "s.decimal.Decimal('3.5')"), "float({})"),
            (("s.fractions.Fraction(1, 2)", "s.fractions.Fraction(3, 2)"), "float({})"),
            (("s.pathlib.Path('a')", "s.pathlib.Path('abc')"), "len(str({}))"),
            (("'\\udc80'", "'\\udc80\\udc81'"), "len({})"),
            (("b'ab'", "b'abc'"), "len({})"),
            ((f"s.{kind}.A", f"s.{kind}.B"), "{}.value"),
            (("torch.float32", "torch.float64"), "(2.0 if {} == torch.float32 else 3.0)"),
            (("torch.device('cpu')", "torch.device('meta')"), "len({}.type)"),
            (("slice(0, 2)", "slice(0, 3)"), "{}.stop"),
            (("range(3)", "range(4)"), "len({})"),
            (("frozenset({1, 2})", "frozenset({1, 2, 3})"), "len({})"),
            (("{'a', 'b'}", "{'a', 'b', 'c'}"), "len({})"),
            (("...", "None"), "(2.0 if {} is ... else 3.0)"),
            (("1 << 80", "1 << 81"), "float({})"),
            (("s.numpy.float32(2.0)", "s.numpy.float32(3.0)"), "float({})"),
            (("s.numpy.array([1.0, 2.0])", "s.numpy.array([1.0, 3.0])"), "float({}[1])"),
            (("torch.tensor(2.0)", "torch.tensor(3.0)"), "{}"),
            (("torch.tensor(2)", "torch.tensor(3)"), "{}.item()"),
            (("int", "float"), "{}(2.7)"),
            (("math", "math"), "{}.pi"),
            (("2 + 1j", "3 + 1j"), "{}.real"),
            (("object()", "None"), "(2.0 if {} is None else 3.0)"),
            (("s.collections.OrderedDict(a=1.0)", "s.collections.OrderedDict(a=2.0)"), "{}['a']"),
            (("s.collections.deque([1.0])", "s.collections.deque([2.0])"), "{}[0]"),
            (("torch.nn.Identity()", "torch.nn.ReLU()"), "(2.0 if isinstance({}, torch.nn.ReLU) else 3.0)"),
            (("[[1.0], [2.0, [3.0]]]", "[[1.0], [2.0, [4.0]]]"), "{}[1][1][0]"),
            (("float('nan')", "1.0"), "(2.0 if {0} != {0} else 3.0)"),
            (("0.0", "-0.0"), "{}"),
            (("True", "1"), "(2.0 if {} is True else 3.0)"),
            (("torch.Size([2, 3])", "(2, 3)"), "{}[1]"),
        ]
    )
    name = g.add_choice(*(value.replace("math", "s.math") for value in values))
    found = g.set(f"{main} * {use.format(name)}")
    if found:
        g.give(found)
    if g.chance.random() < 0.3:
        g.give(name)


@feature("2 two methods", 1.0)
def two_methods(g: Builder) -> None:
    """Another cached method of the module, which shares what both write."""
    main, name = g.main(), g.name("shared")
    g.add_setup(f"self.register_buffer('{name}', torch.zeros(4))")
    line = g.chance.choice(
        [f"self.{name} = self.{name} + x.sum(0)", f"self.{name}.add_(x.sum(0))", f"self.{name}.copy_(x[0])"]
    )
    g.add_member(
        f"@cached({g.chance.choice(['dynamic=False', '', 'dynamic=None'])})\ndef {name}_other(self, x):\n    {line}\n    return x + self.{name}"
    )
    found = g.set(f"{main} + self.{name} * 2.0")
    if found:
        g.give(found)
    for number in range(3):
        g.add_edit(
            "2 other method called", f"other = run(m.{name}_other, tensor(({g.chance.choice([2, 3])}, 4), {number}))"
        )


@feature("6 threads", 0.3)
def threads(g: Builder) -> None:
    """First calls of other methods from several threads at once."""
    main, name = g.main(), g.name("worker")
    for number in range(2):
        g.add_member(f"@cached(dynamic=False)\ndef {name}_{number}(self, x):\n    return x * {number + 2}.0 + 1.0")
    found = g.set(f"{main} + 1.0")
    if found:
        g.give(found)
    g.add_edit(
        "6 threads",
        "import threading\nresults, errors = {}, []\ndef go(number):\n    try:\n"
        f"        results[number] = run(getattr(m, f'{name}_{{number % 2}}'), tensor((2, 4), number))\n"
        "    except Exception as error:\n        errors.append(error)\n"
        "started = [threading.Thread(target=go, args=(number,)) for number in range(4)]\n"
        "for thread in started: thread.start()\nfor thread in started: thread.join(60)\n"
        "del thread, started, go\nif errors: raise errors[0]\nresults = dict(sorted(results.items()))",
    )


@feature("6 wrapper subclass", 0.4)
def wrapper_subclass(g: Builder) -> None:
    """A weight of a wrapper subclass, as quantised weights are."""
    main, name = g.main(), g.name("quantised")
    g.add_top("from torch.testing._internal.two_tensor import TwoTensor")
    g.add_setup(f"self.{name} = torch.nn.Parameter(TwoTensor(torch.ones(4, 4), torch.ones(4, 4)), requires_grad=False)")
    found = g.set(f"torch.nn.functional.linear({main}, self.{name})")
    if found:
        g.give(found)


@feature("6 decorated method", 0.7)
def decorated(g: Builder) -> None:
    """The method under decorators."""
    main = g.main()
    g.add_top(
        "def doubled(f):\n    @functools.wraps(f)\n    def wrapper(*args, **kwargs):\n        return f(*args, **kwargs)\n    return wrapper"
    )
    g.wants["inner decorators"] = [
        "    "
        + g.chance.choice(
            [
                "@torch.no_grad()",
                "@torch.inference_mode()",
                "@doubled",
                "@torch.autocast('cpu', dtype=torch.bfloat16)",
                "@torch.compiler.disable",
            ]
        )
    ]
    found = g.set(f"{main} @ {main}.T")
    if found:
        g.give(found)
