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
    "an attribute": _edit("run", "model.py", "factor=3.0", "factor=5.0", "factor"),
    "a callee from another module": _edit("run", "model.py", "import callee\n", "import callee2 as callee\n", "callee"),
    "a default argument of a callee": _edit(
        "functions", "model.py", "factor=2.0, *", "factor=2.5, *", "with_default.__defaults__"
    ),
    "a value closed over": _edit("functions", "model.py", "made_by(3.0)", "made_by(3.5)", "closure"),
    "an argument of a partial": _edit("functions", "model.py", "factor=4.0", "factor=4.5", "partial"),
    "a decorator": _edit("functions", "callee.py", "(*arguments) + 1", "(*arguments) + 2", "decorated"),
    "a decorated function": _edit("functions", "model.py", "return x * 7", "return x * 8", "decorated"),
    "an object's call": _edit("functions", "configuration.py", "return x - 1", "return x - 2", "Scorer.__call__"),
    "a builtin hidden by a global": _edit(
        "functions", "model.py", "def unrelated(x)", "def max(values):\n    return 0.0\n\n\ndef unrelated(x)", "max"
    ),
    "a member of a set": _edit("containers", "model.py", '{"a", "b"}', '{"b"}', "flags"),
    "a nested setting": _edit("configured", "configuration.py", "theta: float = 2.0", "theta: float = 3.0", "theta"),
    "the value of an enum member held": _edit("configured", "configuration.py", "SMALL = 1.0", "SMALL = 1.25", "kind"),
    "the order of the fields of a result": _edit(
        "named", "configuration.py", "total: Any\n    positive: Any", "positive: Any\n    total: Any", "Result"
    ),
    "a base class of the settings": _edit(
        "configured", "configuration.py", "Settings(Base)", "Settings(Other)", "settings"
    ),
    "a method of a base class": _edit("inherited", "model.py", "return x * 5", "return x * 6", "based"),
    "a child's forward": _edit("stacked", "blocks.py", "+ self.fixed(x)", "- self.fixed(x)", "forward", "blocks.py"),
    "a method overridden in a child's class": _edit(
        "stacked", "blocks.py", "    unused = True", "    def activate(self, x):\n        return x", "activate"
    ),
    "a class of the same name elsewhere": _edit(
        "stacked", "model.py", "import blocks\n", "import blocks2 as blocks\n", "blocks2"
    ),
    "a child more": _edit("stacked", "model.py", "nn.ModuleList([", "nn.ModuleList([blocks.Special(width), ", "module"),
    "a child's setting": _edit("stacked", "blocks.py", "nn.LayerNorm(width)", "nn.LayerNorm(width, eps=0.1)", "eps"),
    "a constant of a module": _edit("imported", "constants.py", "GAIN = 2.0", "GAIN = 3.0", "GAIN"),
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
