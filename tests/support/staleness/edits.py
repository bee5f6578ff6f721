"""Edits of the project in `tests/projects/staleness`: a text of a file replaced by another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A text of a file replaced by another; `words` must stand in the reason of the miss."""

    method: str
    file: str
    old: str
    new: str
    words: tuple[str, ...] = ()


def _edit(method: str, file: str, old: str, new: str, *words: str) -> Edit:
    return Edit(method, file, old, new, words)


#: Edits of what a trace went through: each is a miss.
EDITS = {
    "the method": _edit("run", "model.py", "* self.factor", "* self.factor * 2", "method"),
    "a function of its file": _edit(
        "run", "model.py", "return x * SCALE", "return x * SCALE + 1", "helper", "model.py"
    ),
    "a function of another file": _edit(
        "run", "callee.py", "return x + OFFSET", "return x - OFFSET", "shift", "callee.py"
    ),
    "a function that a callee calls": _edit("run", "deeper.py", "x * LAST", "x / LAST", "last", "deeper.py"),
    "a global constant": _edit("run", "model.py", "SCALE = 2.0", "SCALE = 4.0", "SCALE"),
    "a global of a callee": _edit("run", "callee.py", "OFFSET = 1.0", "OFFSET = 7.0", "OFFSET"),
    "an int for a float": _edit("run", "model.py", "SCALE = 2.0", "SCALE = 2", "SCALE"),
    "an attribute": _edit("run", "model.py", "factor=3.0", "factor=5.0", "factor"),
    "a callee from another module": _edit("run", "model.py", "import callee\n", "import callee2 as callee\n", "callee"),
    "a default argument of a callee": _edit(
        "functions", "model.py", "factor=2.0, *", "factor=2.5, *", "with_default.__defaults__"
    ),
    "a value closed over": _edit("functions", "model.py", "made_by(3.0)", "made_by(3.5)", "closure"),
    "the body of a closure": _edit(
        "functions",
        "model.py",
        "        return x * factor\n\n    return",
        "        return x / factor\n\n    return",
        "inner",
    ),
    "an argument of a partial": _edit("functions", "model.py", "factor=4.0", "factor=4.5", "partial"),
    "the function of a partial": _edit(
        "functions",
        "model.py",
        "partial(with_default, factor",
        "partial(lambda x, factor: x / factor, factor",
        "partial",
    ),
    "a lambda held by the module": _edit("functions", "model.py", "lambda x: x * 2", "lambda x: x * 3", "act"),
    "a decorator": _edit("functions", "callee.py", "(*arguments) + 1", "(*arguments) + 2", "decorated"),
    "a decorated function": _edit("functions", "model.py", "return x * 7", "return x * 8", "decorated"),
    "a function that remembers results": _edit("functions", "model.py", "return 1.5", "return 2.5", "remembered"),
    "an object's call": _edit("functions", "configuration.py", "return x - 1", "return x - 2", "Scorer.__call__"),
    "a function of torch bound to a name": _edit(
        "functions", "model.py", "ACTIVATION = torch.relu", "ACTIVATION = torch.sigmoid", "ACTIVATION"
    ),
    "a builtin hidden by a global": _edit(
        "functions", "model.py", "def unrelated(x)", "def max(values):\n    return 0.0\n\n\ndef unrelated(x)", "max"
    ),
    "a value in a list": _edit(
        "containers", "model.py", "self.scales = [1.0, 2.0]", "self.scales = [1.0, 2.5]", "scales"
    ),
    "the length of a list": _edit(
        "containers", "model.py", "self.scales = [1.0, 2.0]", "self.scales = [1.0, 2.0, 3.0]", "scales"
    ),
    "the length of a list of tensors": _edit(
        "containers", "model.py", "[torch.ones(width), torch.ones(width)]", "[torch.ones(width)]", "pieces"
    ),
    "a value in a dict": _edit("containers", "model.py", '"gain": 2.0', '"gain": 3.0', "table"),
    "the order of a dict": _edit(
        "containers", "model.py", '{"gain": 2.0, "shift": 1.0}', '{"shift": 1.0, "gain": 2.0}', "table"
    ),
    "a key that a dict lacked": _edit("containers", "model.py", '"shift": 1.0}', '"missing": 1.0}', "table"),
    "a member of a set": _edit("containers", "model.py", '{"a", "b"}', '{"b"}', "flags"),
    "a tensor for None": _edit("containers", "model.py", "self.bias = None", "self.bias = torch.ones(width)", "bias"),
    "an attribute that was not there": _edit("containers", "model.py", "self.unused = 0", "self.extra = 0", "extra"),
    "a nested setting": _edit("configured", "configuration.py", "theta: float = 2.0", "theta: float = 3.0", "theta"),
    "a property of the settings": _edit("configured", "configuration.py", "self.scale * 2", "self.scale * 4", "twice"),
    "the value of an enum member held": _edit("configured", "configuration.py", "SMALL = 1.0", "SMALL = 1.25", "kind"),
    "a field of a named tuple": _edit("configured", "configuration.py", "Pair(1.0, 2.0)", "Pair(1.5, 2.0)", "PAIR"),
    "the order of the fields of a result": _edit(
        "named", "configuration.py", "total: Any\n    positive: Any", "positive: Any\n    total: Any", "Result"
    ),
    "a base class of the settings": _edit(
        "configured", "configuration.py", "Settings(Base)", "Settings(Other)", "settings"
    ),
    "a method of a base class": _edit("inherited", "model.py", "return x * 5", "return x * 6", "based"),
    "a constant of a base class": _edit("inherited", "model.py", "LEVEL = 2.0", "LEVEL = 2.5", "LEVEL"),
    "a child's forward": _edit("stacked", "blocks.py", "+ self.fixed(x)", "- self.fixed(x)", "forward", "blocks.py"),
    "a child's method": _edit("stacked", "blocks.py", "torch.relu(x) + 1", "torch.relu(x) + 2", "activate"),
    "a method overridden in a child's class": _edit(
        "stacked", "blocks.py", "    unused = True", "    def activate(self, x):\n        return x", "activate"
    ),
    "a class of the same name elsewhere": _edit(
        "stacked", "model.py", "import blocks\n", "import blocks2 as blocks\n", "blocks2"
    ),
    "a child more": _edit("stacked", "model.py", "nn.ModuleList([", "nn.ModuleList([blocks.Special(width), ", "module"),
    "a child's setting": _edit("stacked", "blocks.py", "nn.LayerNorm(width)", "nn.LayerNorm(width, eps=0.1)", "eps"),
    "a constant of a module": _edit("imported", "constants.py", "GAIN = 2.0", "GAIN = 3.0", "GAIN"),
    "a nested class of a module": _edit("imported", "constants.py", "width = 4", "width = 5", "width"),
}

#: Edits of what no trace went through: each stays a hit.
HARMLESS = {
    "a comment": _edit("run", "model.py", "    def run", "    # a comment\n\n    def run"),
    "lines above the method": _edit("run", "model.py", "SCALE = 2.0", "\n\n\n\nSCALE = 2.0"),
    "an unrelated function": _edit("run", "model.py", "return x - 5", "return x - 6"),
    "an unrelated method": _edit("run", "model.py", "return x * 5", "return x * 6"),
    "an unused global": _edit("run", "model.py", "UNUSED = 1", "UNUSED = 2\nMORE = 3"),
    "an unused attribute": _edit("run", "model.py", "self.unused = 0", "self.unused = 1"),
    "an unused item of a dict": _edit("imported", "constants.py", '"unused": 3.0', '"unused": 4.0'),
    "an unused setting": _edit("configured", "configuration.py", "unused: int = 0", "unused: int = 1"),
    "an unused attribute of a child's class": _edit("stacked", "blocks.py", "unused = True", "unused = False"),
    "an unused class": _edit("configured", "configuration.py", "class Other:", "class Unused:"),
    "a type annotation": _edit("run", "callee.py", "def shift(x):", "def shift(x: object) -> object:"),
    "an import": _edit("run", "callee.py", "import functools", "import functools\nimport json"),
    "the order of a set": _edit("containers", "model.py", '{"a", "b"}', '{"b", "a"}'),
    "an equal expression": _edit("run", "model.py", "SCALE = 2.0", "SCALE = 1.0 + 1.0"),
    "the values of tensors": _edit("tensors", "model.py", "torch.ones(", "torch.zeros("),
}
