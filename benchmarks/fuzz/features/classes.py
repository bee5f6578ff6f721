"""Section 5: state of a process besides the code: sets, abstract classes, protocols, special methods."""

from __future__ import annotations

from benchmarks.fuzz.builder import Builder
from benchmarks.fuzz.features import feature


@feature("5 set", 2.0)
def unordered(g: Builder) -> None:
    """Sets that are iterated, whose order differs in other processes."""
    main, name = g.main(), g.name("words")
    words = "{'alpha', 'beta', 'gamma', 'delta', 'epsilon'}"
    kind = g.chance.randrange(6)
    if kind == 0:
        g.add_setup(f"self.{name} = {words}")
        use = f"functools.reduce(lambda h, word: h * 0.5 + len(word), self.{name}, {main})"
    elif kind == 1:
        g.add_top(f"{name} = {words}")
        use = f"{main} * len(list({name})[0])"
    elif kind == 2:
        use = f"functools.reduce(lambda h, word: h * 0.5 + len(word), {words}, {main})"
    elif kind == 3:
        g.add_setup(f"self.{name} = frozenset({words})")
        use = f"{main} * len(next(iter(self.{name})))"
    elif kind == 4:
        arg = g.add_argument(lambda chance, batch, number: words)
        use = f"functools.reduce(lambda h, word: h * 0.5 + len(word), {arg}, {main})"
    else:
        g.add_setup(f"self.{name} = {{word: len(word) * 1.0 for word in {words}}}")
        use = f"functools.reduce(lambda h, number: h * 0.5 + number, self.{name}.values(), {main})"
    found = g.set(use)
    if found:
        g.give(found)
    g.wants["second process"] = True


@feature("5 isinstance", 2.0)
def isinstance_(g: Builder) -> None:
    """Facts about classes that code elsewhere may change."""
    main, name, kind, base = g.main(), g.name("thing"), g.name("Thing"), g.name("Base")
    form = g.chance.randrange(6)
    edits = {}
    # An abstract class remembers its answers, even those that only one of the worlds asked for.
    forget = f"getattr(s.{base}, '_abc_caches_clear', int)()"
    if form == 0:
        g.add_top(f"class {base}(abc.ABC):\n    pass\nclass {kind}:\n    pass")
        edits["5 ABC.register"] = f"s.{base}.register(s.{kind})"
    elif form == 1:
        g.add_top(
            f"class {base}(abc.ABC):\n    flag = False\n    @classmethod\n    def __subclasshook__(cls, other):\n        return cls.flag\nclass {kind}:\n    pass"
        )
        edits["5 subclasshook"] = f"s.{base}.flag = True"
        edits["5 subclasshook replaced"] = f"s.{base}.__subclasshook__ = classmethod(lambda cls, other: True)"
    elif form == 2:
        g.add_top(
            f"@typing.runtime_checkable\nclass {base}(typing.Protocol):\n    def go(self): ...\nclass {kind}:\n    pass"
        )
        edits["5 protocol"] = f"s.{kind}.go = lambda self: None\n{forget}"
    elif form == 3:
        g.add_top(
            f"class {base}_Meta(type):\n    answer = False\n    def __instancecheck__(cls, other):\n        return cls.answer\nclass {base}(metaclass={base}_Meta):\n    pass\nclass {kind}:\n    pass"
        )
        edits["5 instancecheck"] = f"s.{base}_Meta.answer = True"
        edits["5 instancecheck replaced"] = f"s.{base}_Meta.__instancecheck__ = lambda cls, other: True"
    elif form == 4:
        g.add_top(f"import collections.abc\nclass {kind}:\n    pass\n{base} = collections.abc.Sized")
        edits["5 protocol"] = f"s.{kind}.__len__ = lambda self: 3\n{forget}"
    else:
        g.add_top(f"class {base}:\n    pass\nclass {kind}_Old:\n    pass\nclass {kind}({kind}_Old):\n    pass")
        edits["5 bases changed"] = f"s.{kind}.__bases__ = (s.{base},)"
    how = g.chance.choice(["isinstance({t}, {b})", "issubclass(type({t}), {b})"])
    if g.chance.random() < 0.6:
        g.add_setup(f"self.{name} = {kind}()")
        path = f"self.{name}"
    else:
        path = g.add_argument(lambda chance, batch, number: f"s.{kind}()")
    found = g.set(f"{main} * 2.0 if {how.format(t=path, b=base)} else {main} * 3.0")
    if found:
        g.give(found)
    for label, edit in edits.items():
        g.add_edit(label, edit)


@feature("5 special methods", 2.0)
def special(g: Builder) -> None:
    """Special methods that a class gets later."""
    main, name, kind = g.main(), g.name("thing"), g.name("Thing")
    g.add_top(f"class {kind}:\n    pass")
    if g.chance.random() < 0.6:
        g.add_setup(f"self.{name} = {kind}()")
        path = f"self.{name}"
    else:
        path = g.add_argument(lambda chance, batch, number: f"s.{kind}()")
    use, edit = g.chance.choice(
        [
            (f"{main} * 2.0 if {path} else {main} * 3.0", "__bool__ = lambda self: False"),
            (f"{main} * 2.0 if {path} else {main} * 3.0", "__len__ = lambda self: 0"),
            (f"{main} * 2.0 if {path} == 1 else {main} * 3.0", "__eq__ = lambda self, other: True"),
            (f"{main} * 2.0 if callable({path}) else {main} * 3.0", "__call__ = lambda self: 0"),
            (f"{main} * 2.0 if 1 in [{path}] else {main} * 3.0", "__eq__ = lambda self, other: True"),
            (f"{main} * 2.0 if hasattr({path}, '__len__') else {main} * 3.0", "__len__ = lambda self: 0"),
            (f"{main} * 2.0 if {path} != {path} else {main} * 3.0", "__ne__ = lambda self, other: True"),
            (f"{main} * getattr({path}, 'by', 2.0)", "__getattr__ = lambda self, name: 6.0"),
            (f"{main} * getattr({path}, 'by', 2.0)", "__getattribute__ = lambda self, name: 6.0"),
        ]
    )
    found = g.set(use)
    if found:
        g.give(found)
    g.add_edit("5 special method added", f"s.{kind}.{edit}")


@feature("5 class constructed", 1.5)
def constructed(g: Builder) -> None:
    """A class that the method constructs, whose defaults may change."""
    main, kind = g.main(), g.name("Made")
    form = g.chance.randrange(4)
    if form == 0:
        g.add_top(f"@dataclasses.dataclass\nclass {kind}:\n    a: typing.Any\n    by: float = 2.0")
        g.add_edit("5 dataclass default", f"s.{kind}.__init__.__defaults__ = (5.0,)")
    elif form == 1:
        g.add_top(f"class {kind}:\n    def __init__(self, a, by=2.0):\n        self.a, self.by = a, by")
        g.add_edit("5 default changed", f"s.{kind}.__init__.__defaults__ = (5.0,)")
        g.add_rewrite("5 default in the file", "by=2.0", "by=2.5")
    elif form == 2:
        g.add_top(f"class {kind}(typing.NamedTuple):\n    a: typing.Any\n    by: float = 2.0")
        g.add_edit("5 namedtuple default", f"s.{kind}.__new__.__defaults__ = (5.0,)")
    else:
        g.add_top(f"class {kind}:\n    by = 2.0\n    def __init__(self, a):\n        self.a = a")
        g.add_edit("5 class attribute changed", f"s.{kind}.by = 5.0")
    g.add_rewrite("5 field default in the file", "by: float = 2.0", "by: float = 4.0")
    made = g.set(f"{kind}({main})")
    if made is None:
        return
    found = g.set(f"{made}.a * {made}.by")
    if found:
        g.give(found)
    if g.chance.random() < 0.5:
        g.give(made)


@feature("5 environment", 1.0)
def environment(g: Builder) -> None:
    """Environment variables and other facts of the process."""
    main, name = g.main(), g.name("FUZZ_VARIABLE")
    use = g.chance.choice(
        [
            f"float(os.environ.get('{name}', '2.0'))",
            f"(3.0 if '{name}' in os.environ else 2.0)",
            f"float(os.getenv('{name}', 2.0))",
        ]
    )
    found = g.set(f"{main} * {use}")
    if found:
        g.give(found)
    g.add_edit("5 environment", f"import os; os.environ['{name}'] = '4.0'", scope="process")


@feature("5 base class", 1.0)
def base_class(g: Builder) -> None:
    """Methods and attributes of a base class of the model."""
    main, base = g.main(), g.name("Parent")
    g.add_top(
        f"class {base}(torch.nn.Module):\n    inherited = 2.0\n    def shared(self, x):\n        return x * self.inherited"
    )
    if g.bases != "torch.nn.Module":
        return
    g.bases = base
    if g.chance.random() < 0.5:
        g.add_member("def shared(self, x):\n    return super().shared(x) + 1.0")
    found = g.set(f"self.shared({main})")
    if found:
        g.give(found)
    g.add_edit("5 method patched", f"s.{base}.shared = lambda self, x: x * 9.0")
    g.add_edit("5 class attribute changed", f"s.{base}.inherited = 3.0")
    g.add_edit("5 override added", "s.Model.inherited = 4.0")
    g.add_rewrite("5 base in the file", "    inherited = 2.0", "    inherited = 2.5")
    g.add_rewrite("5 base in the file", "return x * self.inherited", "return x + self.inherited")
