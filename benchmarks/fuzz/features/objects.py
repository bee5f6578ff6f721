"""Objects that the method makes: their attributes, texts and lifetime; iterators that it leaves early or returns."""

from __future__ import annotations

from benchmarks.fuzz.builder import Builder
from benchmarks.fuzz.features import feature


def _give(g: Builder, expression: str) -> None:
    """Add the result of an expression to the result, if the expression can be run."""
    if name := g.set(expression):
        g.give(name)


@feature("objects made", 1.0)
def made_object(g: Builder) -> None:
    """An object of a class of the file; the method reads more than its attributes."""
    main, kind, made = g.main(), g.name("Made"), g.name("made")
    text = g.chance.choice(
        [
            f"class {kind}:\n    value = 0\n    def __init__(self, value):\n        self.value = value",
            f"@dataclasses.dataclass\nclass {kind}:\n    value: typing.Any\n    other: int = 3",
            f"class {kind}:\n    def __init__(self, value):\n        self.value = value\n"
            f"    def __repr__(self):\n        return f'<{{self.value}}>'",
            f"class {kind}:\n    value = 7\n    def __init__(self, value):\n        self.value = value\n"
            f"    def __format__(self, spec):\n        return f'{{self.value}}{{spec}}'",
        ]
    )
    g.add_top(text)
    value = g.chance.choice(["3", "'text'", "2.5", f"{main}.shape[0]", main])
    g.statement(f"{made} = {kind}({value})")
    g.statement(
        g.chance.choice(["pass", f"{made}.added = 5", f"{made}.value = 9", f"del {made}.value; {made}.value = 1"])
    )
    texts = [f"f'{{{made}}}'"] if "__" in text.replace("__init__", "") or "dataclass" in text else []
    if "__repr__" in text or "dataclass" in text:
        texts += [f"str({made})", f"repr([{made}])", f"f'{{[{made}]}}'", f"'{{}}'.format({made})"]
    _give(
        g,
        g.chance.choice(
            [
                *texts,
                f"vars({made})",
                f"dict({made}.__dict__)",
                f"sorted(vars({made}))",
                f"list({made}.__dict__.values())",
                f"'value' in vars({made})",
                f"hasattr({made}, 'added')",
                f"getattr({made}, 'added', 4)",
                made,
                f"[{made}, {made}]",
            ]
        ),
    )


@feature("own attributes listed", 0.6)
def own_attributes(g: Builder) -> None:
    """The `__dict__` of the module after attributes were added, changed and removed."""
    name = g.name("late")
    g.statement(
        g.chance.choice(
            [
                f"self.{name} = 3",
                f"self.{name} = 3\ndel self.{name}",
                f"self.__dict__['{name}'] = 4",
                f"setattr(self, '{name}', 'x')",
                f"self.{name} = 1\nself.__dict__.pop('{name}')",
            ]
        )
    )
    _give(g, g.chance.choice([f"'{name}' in vars(self)", f"'{name}' in self.__dict__", f"hasattr(self, '{name}')"]))
    _give(g, "[k for k in self.__dict__ if not k.startswith('_')]")


@feature("iterators left", 1.0)
def iterator_left(g: Builder) -> None:
    """A generator that does something at its end, of which the method takes only a part; other unfinished iterators."""
    main, numbers, count = g.main(), g.name("numbers"), g.name("count")
    g.statement(f"{count} = []")
    body = g.chance.choice(
        [
            f"    try:\n        yield 1\n        yield 2\n    finally:\n        {count}.append(1)",
            f"    yield 1\n    {count}.append(2)\n    yield 2",
            f"    for k in range(3):\n        {count}.append(k)\n        yield k",
            f"    try:\n        yield 1\n    except GeneratorExit:\n        {count}.append(3)\n        raise\n    yield 2",
        ]
    )
    g.statement(f"def {numbers}():\n{body}")
    use = g.chance.choice(
        [
            f"for n in {numbers}():\n    break",
            f"n = next({numbers}())",
            f"n = list({numbers}())",
            f"n = any(k > 0 for k in {numbers}())",
            f"it = {numbers}()\nn = next(it)\nit.close()",
            f"n, *rest = {numbers}()",
            f"n = sum({numbers}(), 0)",
            f"n = [k for k, _ in zip({numbers}(), [1])]",
            f"n = dict(enumerate({numbers}()))",
        ]
    )
    g.statement(use)
    _give(g, f"({main} * 1.0, n, {count})")
