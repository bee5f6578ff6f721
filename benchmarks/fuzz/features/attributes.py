"""Sections 2 and 3: attributes of all kinds, read by the method and changed by other code."""

from __future__ import annotations

from benchmarks.fuzz.builder import Builder
from benchmarks.fuzz.features import feature


@feature("2 scalar attribute", 2.0)
def scalar(g: Builder) -> None:
    """A float, int, bool, text, None or enum member."""
    main, name = g.main(), g.name("scale")
    values = g.chance.choice(
        [
            ("0.5", "2.5"),
            ("2", "5"),
            ("True", "False"),
            ("None", "1.0"),
            ("0.0", "-0.0"),
            ("1", "1.0"),
            ("1", "True"),
            ("float('nan')", "1.0"),
        ]
    )
    g.add_setup(f"self.{name} = {values[0]}")
    found = g.set(
        g.chance.choice(
            [f"{main} * (self.{name} or 3.0)", f"{main} + 1.0 if self.{name} else {main} - 1.0"]
            if values[0] == "None"
            else [
                f"{main} * self.{name}",
                f"{main} + 1.0 if self.{name} else {main} - 1.0",
                f"{main} * float(self.{name})",
            ]
        )
    )
    if found:
        g.give(found)
    if g.chance.random() < 0.3:
        g.give(f"self.{name}")
    g.add_edit("2 attribute changed", f"m.{name} = {values[1]}")
    g.add_rewrite("5 attribute in the file", f"self.{name} = {values[0]}", f"self.{name} = {values[1]}")


@feature("2 text attribute", 1.0)
def text(g: Builder) -> None:
    """A text or enum that decides a branch."""
    main, name = g.main(), g.name("mode")
    if g.chance.random() < 0.5:
        g.add_setup(f"self.{name} = 'double'")
        found = g.set(f"{main} * 2.0 if self.{name} == 'double' else {main} * 3.0")
        g.add_edit("2 attribute changed", f"m.{name} = 'triple'")
    else:
        kind = g.name("Kind")
        g.add_top(
            f"class {kind}({g.chance.choice(['enum.Enum', 'enum.IntEnum', 'str, enum.Enum'])}):\n    A = {'1'}\n    B = {'2'}"
        )
        g.add_setup(f"self.{name} = {kind}.A")
        found = g.set(f"{main} * 2.0 if self.{name} is {kind}.A else {main} * 3.0")
        g.add_edit("2 attribute changed", f"m.{name} = s.{kind}.B")
        if g.chance.random() < 0.3:
            g.give(f"self.{name}")
    if found:
        g.give(found)


@feature("2 list attribute", 1.5)
def listed(g: Builder) -> None:
    """A list or tuple of numbers or tensors."""
    main, name = g.main(), g.name("items")
    is_tensor = g.chance.random() < 0.5
    first = "[torch.ones(4), torch.zeros(4)]" if is_tensor else "[1.0, 2.0]"
    g.add_setup(f"self.{name} = {first}")
    found = g.set(
        g.chance.choice(
            [
                f"{main} * self.{name}[0]",
                f"sum([{main} * q for q in self.{name}])",
                f"{main} * self.{name}[-1] * len(self.{name})",
                f"functools.reduce(lambda p, q: p * q, self.{name}, {main})",
                f"{main} * (2.0 if not self.{name} else 3.0)",
                f"{main} * len([*self.{name}, 1.0])",
            ]
        )
    )
    if found:
        g.give(found)
    g.add_edit("2 list changed", f"m.{name}.clear()")
    more = "tensor((4,), 5)" if is_tensor else "7.0"
    g.add_edit("2 list changed", f"m.{name}.append({more})")
    g.add_edit("2 list changed", f"m.{name}[0] = {more}")
    g.add_edit("2 list changed", f"m.{name}.reverse()")
    g.add_edit("2 attribute changed", f"m.{name} = [{more}, {more}, {more}]")
    g.add_edit("2 attribute changed", f"m.{name} = ({more}, {more})")


@feature("2 dict attribute", 1.5)
def mapping(g: Builder) -> None:
    """A dict, ordered dict or default dict of numbers or tensors."""
    main, name = g.main(), g.name("table")
    form = g.chance.choice(
        [
            "{'a': 2.0, 'b': 3.0}",
            "collections.OrderedDict(a=2.0, b=3.0)",
            "{'a': torch.ones(4), 'b': 3.0}",
            "{1: 2.0, 'a': 0.5, 'b': 1.5}",
        ]
    )
    g.add_setup(f"self.{name} = {form}")
    found = g.set(
        g.chance.choice(
            [
                f"{main} * self.{name}['a']",
                f"{main} * self.{name}.get('c', 1.5)",
                f"{main} + (5.0 if 'c' in self.{name} else 1.0)",
                f"sum([{main} * q for q in self.{name}.values()])",
                f"{main} * len(self.{name})",
                f"[{main} * q for k, q in self.{name}.items()][0]",
                f"{main} * list(self.{name}.values())[-1]",
                f"{main} * (2.0 if not self.{name} else 3.0)",
                f"{main} * len([*self.{name}])",
                f"{main} * (2.0 if any(self.{name}) else 5.0)",
                f"{main} * len(f'{{self.{name}}}')",
                f"{main} * len({{**self.{name}}})",
            ]
        )
    )
    if found:
        g.give(found)
    g.add_edit("2 dict changed", f"m.{name}['c'] = 4.0")
    g.add_edit("2 dict changed", f"m.{name}.clear()")
    g.add_edit("2 dict changed", f"m.{name}['a'] = 4.0")
    g.add_edit("2 dict changed", f"m.{name}['a'] = m.{name}.pop('a')")
    g.add_edit("2 attribute changed", f"m.{name} = {{'b': 1.0, 'a': 6.0}}")


@feature("2 tensor attribute", 1.5)
def tensor_attribute(g: Builder) -> None:
    """An ordinary tensor attribute."""
    main, name = g.main(), g.name("plain")
    g.add_setup(f"self.{name} = torch.ones(4)")
    found = g.set(f"{main} * self.{name}")
    if found:
        g.give(found)
    if g.chance.random() < 0.3:
        g.give(f"self.{name}")
    g.add_edit("2 tensor attribute replaced", f"m.{name} = tensor((4,), 5)")
    g.add_edit("2 tensor attribute in place", f"m.{name}.mul_(3)")
    g.add_edit("2 tensor attribute replaced", f"m.{name} = tensor((1,), 5)")
    g.add_edit("2 tensor attribute replaced", f"m.{name} = tensor((4,), 5, 'float64')")
    g.add_edit("2 tensor attribute replaced", f"m.{name} = 2.0")


@feature("2 config object", 1.5)
def config(g: Builder) -> None:
    """An object whose attributes the method reads."""
    main, name, kind = g.main(), g.name("config"), g.name("Config")
    form = g.chance.randrange(4)
    if form == 0:
        g.add_top(f"@dataclasses.dataclass\nclass {kind}:\n    scale: float = 2.0\n    steps: int = 2")
    elif form == 1:
        g.add_top(f"class {kind}:\n    steps = 2\n    def __init__(self):\n        self.scale = 2.0")
    elif form == 2:
        g.add_top(
            f"class {kind}:\n    __slots__ = ('scale', 'steps')\n    def __init__(self):\n        self.scale, self.steps = 2.0, 2"
        )
    else:
        g.add_top(f"class {kind}(typing.NamedTuple):\n    scale: float = 2.0\n    steps: int = 2")
    g.add_setup(f"self.{name} = {kind}()")
    found = g.set(
        g.chance.choice(
            [f"{main} * self.{name}.scale", f"{main} * sum([self.{name}.scale for _ in range(self.{name}.steps)])"]
        )
    )
    if found:
        g.give(found)
    if g.chance.random() < 0.2:
        g.give(f"self.{name}")
    if form == 3:
        g.add_edit("2 config replaced", f"m.{name} = s.{kind}(3.0, 3)")
    else:
        g.add_edit("2 config changed", f"m.{name}.scale = 5.0")
        g.add_edit("2 config changed", f"m.{name}.{'steps = 3' if form != 1 else 'steps = 4'}")
    if form == 1:
        g.add_edit("5 class attribute changed", f"s.{kind}.steps = 3")
        g.add_edit("5 property added", f"s.{kind}.steps = property(lambda self: 3)")


@feature("5 absent attribute", 1.5)
def absent(g: Builder) -> None:
    """An attribute that does not exist, and may be set later."""
    main, name = g.main(), g.name("maybe")
    owner = "self"
    if g.chance.random() < 0.5:
        owner = f"self.{g.name('holder')}"
        kind = g.name("Holder")
        g.add_top(f"class {kind}:\n    pass")
        g.add_setup(f"{owner} = {kind}()")
    found = g.set(
        g.chance.choice(
            [
                f"{main} * getattr({owner}, '{name}', 2.0)",
                f"{main} * (3.0 if hasattr({owner}, '{name}') else 2.0)",
                f"{main} * (3.0 if '{name}' in {owner}.__dict__ else 2.0)",
                f"{main} * (2.0 if getattr({owner}, '{name}', None) is None else 5.0)",
            ]
        )
    )
    if found:
        g.give(found)
    target = owner.replace("self", "m")
    g.add_edit("5 attribute added", f"{target}.{name} = 7.0")
    g.add_edit("5 class attribute added", f"type({target}).{name} = 6.0")
    g.add_edit(
        "5 getattr added",
        f"type({target}).__getattr__ = lambda self, name: 4.0 if name == '{name}' else torch.nn.Module.__getattr__(self, name)",
    )


@feature("6 odd attribute", 1.0)
def odd(g: Builder) -> None:
    """Unusual values."""
    main, name = g.main(), g.name("odd")
    g.add_top(
        "import decimal\nimport fractions\nimport pathlib\nimport datetime\nimport uuid\nimport re\nimport weakref"
    )
    value, use = g.chance.choice(
        [
            ("decimal.Decimal('2.5')", "float({})"),
            ("fractions.Fraction(1, 2)", "float({})"),
            ("pathlib.Path('a/b')", "len(str({}))"),
            ("'\\udc80x'", "len({})"),
            ("'\\udc80x'", "(2.0 if {} == 'y' else 3.0)"),
            ("b'\\x00\\xff'", "len({})"),
            ("2 + 3j", "{}.real"),
            ("1 << 80", "float({})"),
            ("range(3)", "len({})"),
            ("slice(0, 2)", "{}.stop"),
            ("frozenset({'a', 'b'})", "len({})"),
            ("torch.Size([2, 3])", "{}[0]"),
            ("torch.float64", "(2.0 if {} == torch.float64 else 1.0)"),
            ("torch.device('cpu')", "(2.0 if {}.type == 'cpu' else 1.0)"),
            ("re.compile('a+')", "(2.0 if {}.match('aa') else 1.0)"),
            ("float('inf')", "{}"),
            ("...", "(2.0 if {} is ... else 1.0)"),
            ("NotImplemented", "(2.0 if {} is NotImplemented else 1.0)"),
            ("collections.Counter('aab')", "{}['a']"),
            ("collections.deque([1.0, 2.0])", "{}[0]"),
            ("collections.defaultdict(float, a=1.5)", "{}['a']"),
            ("datetime.timedelta(seconds=3)", "{}.total_seconds()"),
            ("bytearray(b'abc')", "len({})"),
            ("int", "{}(2.7)"),
            ("object()", "(2.0 if {} is not None else 1.0)"),
            ("math", "{}.pi"),
            ("iter([1.0, 2.0])", "next({})"),
            ("torch.tensor(2.0)", "{}.item()"),
            ("torch.tensor(3)", "{}"),
            ("{'a': {'b': [1.0, (2.0, 3.0)]}}", "{}['a']['b'][1][0]"),
        ]
    )
    g.add_setup(f"self.{name} = {value}")
    found = g.set(f"{main} * {use.format(f'self.{name}')}")
    if found:
        g.give(found)
    if g.chance.random() < 0.3:
        g.give(f"self.{name}")
