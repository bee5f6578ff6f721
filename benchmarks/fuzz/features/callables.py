"""Sections 3, 5 and 6: functions, wherever a method may find them."""

from __future__ import annotations

from benchmarks.fuzz.builder import Builder
from benchmarks.fuzz.features import feature

UNARY = (
    "torch.Tensor.cos",
    "torch.Tensor.sin",
    "torch.cos",
    "torch.sin",
    "torch.nn.functional.relu",
    "torch.nn.functional.silu",
    "torch.relu",
    "torch.Tensor.neg",
    "operator.neg",
    "functools.partial(torch.add, other=1.0)",
    "functools.partial(torch.mul, other=2.0)",
    "torch.Tensor.abs",
    "abs",
    "torch.nn.ReLU()",
    "torch.Tensor.clone",
    "torch.square",
    "torch.Tensor.__neg__",
    "operator.methodcaller('cos')",
    "torch.ops.aten.cos.default",
    "torch.ops.aten.sin",
)


@feature("3 callable in an attribute", 2.0)
def attribute(g: Builder) -> None:
    """A function as an attribute, in a list, a dict, a global or a class attribute."""
    main, name = g.main(), g.name("act")
    first, second = g.chance.sample(UNARY, 2)
    kind = g.chance.randrange(5)
    if kind == 0:
        g.add_setup(f"self.{name} = {first}")
        path, edit = f"self.{name}", f"m.{name} = "
    elif kind == 1:
        g.add_setup(f"self.{name} = [{first}]")
        path, edit = f"self.{name}[0]", f"m.{name}[0] = "
    elif kind == 2:
        g.add_setup(f"self.{name} = {{'f': {first}}}")
        path, edit = f"self.{name}['f']", f"m.{name}['f'] = "
    elif kind == 3:
        g.add_top(f"{name} = {first}")
        path, edit = name, f"s.{name} = "
    else:
        g.add_top(f"{name} = {{'f': {first}}}")
        path, edit = f"{name}['f']", f"s.{name}['f'] = "
    found = g.set(f"{path}({main})")
    if found:
        g.give(found)
    g.add_edit(
        "3 callable changed", edit + second.replace("functools", "s.functools").replace("operator", "s.operator")
    )
    g.add_rewrite("3 callable in the file", first, second)


@feature("3 callable as argument", 1.5)
def argument(g: Builder) -> None:
    """A function that is passed, or a default."""
    main = g.main()
    choices = [
        item.replace("functools", "s.functools").replace("operator", "s.operator") for item in g.chance.sample(UNARY, 3)
    ]
    name = g.add_choice(*choices, default="torch.Tensor.exp" if g.chance.random() < 0.5 else None)
    found = g.set(f"{name}({main})")
    if found:
        g.give(found)
    g.add_rewrite("3 default in the file", "torch.Tensor.exp", "torch.Tensor.sqrt")


@feature("5 helper function", 2.0)
def helper(g: Builder) -> None:
    """A function of the file, reached in one of many ways."""
    main, name = g.main(), g.name("helper")
    g.add_top(f"{name}_by = 2.0\ndef {name}(x, by=3.0):\n    return x * {name}_by + by")
    kind = g.chance.randrange(9)
    if kind == 0:
        use = f"{name}({main})"
    elif kind == 1:
        g.add_top(f"def {name}_outer(x):\n    def inner(y):\n        return {name}(y) + 0.5\n    return inner(x)")
        use = f"{name}_outer({main})"
    elif kind == 2:
        g.add_top(
            f"def {name}_make(by):\n    def made(x):\n        return x * by\n    return made\n{name}_made = {name}_make(2.5)"
        )
        use = f"{name}_made({main})"
        g.add_edit("5 closure changed", f"s.{name}_made.__closure__[0].cell_contents = 4.5")
        g.add_edit("5 function replaced", f"s.{name}_made = s.{name}_make(3.5)")
        g.add_rewrite("5 closure in the file", f"{name}_make(2.5)", f"{name}_make(3.5)")
    elif kind == 3:
        g.add_member(f"@staticmethod\ndef {name}_static(x):\n    return {name}(x) - 1.0")
        use = f"self.{name}_static({main})"
        g.add_rewrite("5 static method in the file", f"return {name}(x) - 1.0", f"return {name}(x) - 2.0")
    elif kind == 4:
        g.add_member(
            f"@classmethod\ndef {name}_class(cls, x):\n    return {name}(x) * cls.{name}_factor\n{name}_factor = 2.0"
        )
        use = f"self.{name}_class({main})"
        g.add_edit("5 class attribute changed", f"s.Model.{name}_factor = 5.0")
    elif kind == 5:
        g.add_member(f"@property\ndef {name}_property(self):\n    return {name}_by + 1.0")
        use = f"{main} * self.{name}_property"
        g.add_edit("5 property replaced", f"s.Model.{name}_property = property(lambda self: 9.0)")
    elif kind == 6:
        g.add_member(f"def {name}_method(self, x, *, by=2.0):\n    return {name}(x) * by")
        use = f"self.{name}_method({main})"
        g.add_edit("5 method patched", f"s.Model.{name}_method = lambda self, x: x * 11.0")
        g.add_edit("2 method on the instance", f"m.{name}_method = lambda x: x * 11.0")
        g.add_edit("5 keyword default changed", f"s.Model.{name}_method.__kwdefaults__['by'] = 4.0")
    elif kind == 7:
        g.add_top(
            f"def {name}_twice(f):\n    @functools.wraps(f)\n    def wrapped(x):\n        return f(f(x))\n    return wrapped\n@{name}_twice\ndef {name}_decorated(x):\n    return {name}(x) + 0.25"
        )
        use = f"{name}_decorated({main})"
        g.add_rewrite("5 decorated in the file", f"return {name}(x) + 0.25", f"return {name}(x) + 0.75")
    else:
        g.add_top(
            f"class {name}_Callable:\n    by = 2.0\n    def __call__(self, x):\n        return {name}(x) * self.by\n{name}_object = {name}_Callable()"
        )
        use = f"{name}_object({main})"
        g.add_edit("5 call replaced", f"s.{name}_Callable.__call__ = lambda self, x: x * 13.0")
        g.add_edit("5 class attribute changed", f"s.{name}_Callable.by = 5.0")
    found = g.set(use)
    if found:
        g.give(found)
    g.add_edit("5 global changed", f"s.{name}_by = 5.0")
    g.add_edit("5 function replaced", f"s.{name} = lambda x, by=1.0: x - by")
    g.add_edit("5 default changed", f"s.{name}.__defaults__ = (7.0,)")
    g.add_edit("5 code replaced", f"s.{name}.__code__ = (lambda x, by=1.0: x - by).__code__")
    g.add_rewrite("5 global in the file", f"{name}_by = 2.0", f"{name}_by = 2.5")
    g.add_rewrite("5 constant in the file", f"return x * {name}_by + by", f"return x * {name}_by - by")
    g.add_rewrite("5 default in the file", "by=3.0", "by=3.5")
    g.add_rewrite("comment in the file", "class Model(", "# nothing\nclass Model(")


@feature("5 torch patched", 1.0)
def patched(g: Builder) -> None:
    """Functions and methods of torch that the program exchanges."""
    main = g.main()
    name = g.name("layer")
    g.add_setup(f"self.{name} = torch.nn.Linear(4, 4)")
    use, edit = g.chance.choice(
        [
            (f"torch.relu({main})", "torch.relu = lambda x: x * 5.0"),
            (f"{main}.relu()", "torch.Tensor.relu = lambda self: self * 5.0"),
            (f"torch.nn.functional.relu({main})", "torch.nn.functional.relu = lambda x: x * 5.0"),
            (f"torch.nn.functional.gelu({main})", "torch.nn.functional.gelu = lambda x: x * 5.0"),
            (f"self.{name}({main})", "torch.nn.Linear.forward = lambda self, x: x * 5.0"),
            (f"self.{name}({main})", "torch.nn.functional.linear = lambda x, w, b=None: x * 5.0"),
            (f"{main} + 1.0", "torch.Tensor.__add__ = lambda self, other: self * 5.0"),
            (f"{main}.mean()", "torch.Tensor.mean = lambda self: self.sum()"),
            (f"self.{name}({main})", "torch.nn.Module.__call__ = lambda self, x: x * 5.0"),
            (f"self.{name}.weight.sum() + {main}", "torch.nn.Module.__getattr__ = lambda self, name: torch.ones(4, 4)"),
            (f"torch.nn.functional.softmax({main}, dim=-1)", "torch.nn.functional.softmax = lambda x, dim: x * 5.0"),
            (f"math.sqrt(4.0) * {main}", "import math; math.sqrt = lambda x: 7.0"),
        ]
    )
    found = g.set(use)
    if found:
        g.give(found)
    g.add_edit("5 torch patched", edit, scope="process")
