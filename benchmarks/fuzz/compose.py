"""Draws one case: a module of a few features, a way to wrap it, calls, and edits between them and between processes."""

from __future__ import annotations

import random

import torch

from benchmarks.fuzz import features
from benchmarks.fuzz.builder import BATCH, TRIED, Argument, Builder, Edit, Rewrite
from benchmarks.fuzz.case import ARGUMENTS, Case, Phase, Step
from benchmarks.fuzz.features import (  # noqa: F401 - they register
    attributes,
    callables,
    children,
    classes,
    flow,
    metadata,
    operators,
    state,
)
from benchmarks.fuzz.model_edits import model_edits

MODES = ("", "torch.no_grad()", "torch.inference_mode()")


def draw_case(seed: str, backend: str) -> Case:
    """Return the case that a seed stands for."""
    chance = random.Random(seed)
    g = Builder(chance)
    _body(g)
    result = _result(g)
    return _Steps(g, result, seed, backend).case()


def _body(g: Builder) -> None:
    chosen = [features.draw(g.chance) for _ in range(g.chance.choices([1, 2, 3], [5, 3, 2])[0])]
    has_inputs = not any(label.startswith("6 no tensor") for label, _ in chosen)
    if has_inputs and g.chance.random() < 0.8:
        g.add_tensor(shape=g.chance.choice([(BATCH, 4)] * 6 + [(BATCH, 2, 4), (4,)]))
    for label, function in chosen:
        if has_inputs:
            for _ in range(g.chance.choices([0, 1, 2], [5, 3, 1])[0]):
                operators.random_line(g)
        g.feature = label
        function(g)
        g.feature = ""
        g.features.append(label)
    for _ in range(g.chance.choices([0, 1, 2, 4], [4, 3, 2, 1])[0] if has_inputs else 0):
        operators.random_line(g)


def _result(g: Builder) -> str:
    if g.wants.get("generator"):
        return "None"
    parts = list(dict.fromkeys(g.given))
    names = [name for name in g.tensors(lambda _: True) if name not in parts]
    parts += g.chance.sample(names, min(len(names), g.chance.choice([0, 0, 1, 2])))
    if not parts:
        parts = [g.chance.choice(names)] if names else ["None"]
    if g.chance.random() < 0.1:
        parts.append(g.chance.choice(["1", "'text'", "None", "True", "2.5", "self", parts[0]]))
    g.chance.shuffle(parts)
    if len(parts) == 1 and g.chance.random() < 0.7:
        return parts[0]
    kind = g.chance.randrange(6)
    joined = ", ".join(parts)
    if kind == 0:
        return f"[{joined}]"
    if kind == 1:
        return "{" + ", ".join(f"'r{number}': {part}" for number, part in enumerate(parts)) + "}"
    if kind == 2:
        return f"({parts[0]}, [{joined}])"
    if kind == 3:
        return f"{{'nested': ({joined},), 'n': {len(parts)}}}"
    return f"({joined},)"


class _Steps:
    """Writes the steps of a case."""

    def __init__(self, g: Builder, result: str, seed: str, backend: str) -> None:
        self.g, self.chance, self.seed, self.backend = g, g.chance, seed, backend
        self.number = 0
        self.calls = 0
        self.style = self.chance.choices(["decorator", "attribute", "outside"], [4, 3, 2])[0]
        self.options = self._options()
        if self.style == "decorator":
            g.wants["decorators"] = [f"    @cached({self.options})"]
        elif self.style == "attribute":
            g.setup.append(f"self.served = cached(self.{g.method}{', ' if self.options else ''}{self.options})")
        self.source = g.text(result=result)
        self.edits: list[Edit] = g.edits + model_edits(g.instance(), self.chance)

    def _options(self) -> str:
        first = next((item for item in self.g.arguments if item.is_tensor), None)
        value = self.g.space().get(first.name) if first is not None else None
        has_batch = isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == TRIED
        kind = self.chance.choices(["static", "dynamic", "automatic", "gears"], [5, 3, 2, 2 if has_batch else 0])[0]
        parts = {
            "static": ["dynamic=False"],
            "dynamic": self.chance.choice([["dynamic=True"], []]),
            "automatic": ["dynamic=None"],
            "gears": [f"gears={{{first.name!r}: {{0: {self.chance.choice(['[3, 2]', '[2, 3, 5]', '[1, 3]'])}}}}}"]
            if first
            else [],
        }[kind]
        if self.chance.random() < 0.1:
            miss = self.chance.choice(["compile", "eager", "raise"])
            parts = [*parts, f"config={{'on_miss': {miss!r}}}"]
        return ", ".join(parts)

    def case(self) -> Case:
        """Return the case."""
        g = self.g
        steps = [self._build(), *self._call(first=True)]
        if self.chance.random() < 0.5:
            steps += self._call()
        for _ in range(self.chance.choices([0, 1, 2], [3, 5, 2])[0]):
            steps += self._edit()
            steps += self._call(again=self.chance.random() < 0.5)
        phases = [Phase(self.source, tuple(steps))]
        if g.wants.get("second process") or self.chance.random() < 0.45:
            phases.append(self._second())
        return Case(
            f"case_{self.seed.replace(':', '_')}",
            self.seed,
            self.backend,
            tuple(phases),
            tuple(dict.fromkeys(g.features)),
            g.origins,
        )

    def _second(self) -> Phase:
        source, steps = self.source, []
        rewrites = [item for item in self.g.rewrites if item.old in source]
        kind = self.chance.choices(["same", "file", "early"], [3, 3 if rewrites else 0, 3 if self.edits else 0])[0]
        self.number = 1000
        steps.append(self._build())
        if kind == "file":
            chosen: Rewrite = self.chance.choice(rewrites)
            source = source.replace(chosen.old, chosen.new)
            steps.append(Step(chosen.label, "pass"))
        if kind == "early":
            edits = [edit for edit in self.edits if edit.early]
            if edits:
                edit = self.chance.choice(edits)
                steps.append(Step(edit.label, edit.text, edit.scope))
        steps += self._call(first=True)
        if self.chance.random() < 0.5:
            if self.chance.random() < 0.5:
                steps += self._edit()
            steps += self._call(again=self.chance.random() < 0.3)
        return Phase(source, tuple(steps))

    def _build(self) -> Step:
        lines = [f"torch.manual_seed({self.chance.randrange(3)})", "m = s.Model()"]
        mode = self.chance.choices(MODES, [8, 1, 1])[0]
        if mode:
            lines = [f"with {mode}:", "    " + "; ".join(lines)]
        if self.g.wants.get("eval"):
            lines.append("m.eval()")
        if self.style == "outside":
            lines.append(f"served = cached(m.{self.g.method}{', ' if self.options else ''}{self.options})")
        return Step("build", "\n".join(lines))

    def _edit(self) -> list[Step]:
        if not self.edits or self.chance.random() < 0.1:
            return []
        # The features' own edits are more to the point than those of any model.
        own = self.g.edits
        edit = self.chance.choice(own if own and self.chance.random() < 0.7 else self.edits)
        return [Step(edit.label, edit.text, edit.scope)]

    def _call(self, *, first: bool = False, again: bool = False) -> list[Step]:
        """Return the steps that make arguments (unless those of the last call are passed again) and call."""
        chance = self.chance
        self.calls += 1
        steps = []
        if first or not again:
            batch = TRIED if first or chance.random() < 0.5 else chance.choice([2, 2, 4, 5, 1, 0])
            texts = [
                f"p{index} = {argument.value(chance, batch, 0 if first else self.number + 1)}"
                for index, argument in enumerate(self.g.arguments)
            ]
            self._relate(texts, first)
            if texts:
                lines = "\n".join(texts)
                if chance.random() < 0.06:
                    lines = "with torch.inference_mode():\n    " + lines.replace("\n", "\n    ")
                steps.append(Step(ARGUMENTS, lines))
        self.number += 1
        mode = chance.choices(MODES, [6, 3, 2])[0]
        passed = self._passed(first)
        target = {"decorator": f"m.{self.g.method}", "attribute": "m.served", "outside": "served"}[self.style]
        call = f"out{self.calls} = run({', '.join([target, *passed])})"
        if self.g.wants.get("generator"):
            call = f"out{self.calls} = list(run({', '.join([target, *passed])}))"
        around = [mode] if mode else []
        if not first and self.g.wants.get("around") and chance.random() < 0.6:
            around.append(self.g.wants["around"])
        if around:
            call = f"with {', '.join(around)}:\n    {call}"
        steps.append(Step("call", call))
        return steps

    def _relate(self, texts: list[str], first: bool) -> None:
        """Let arguments be one object or share memory, or take them from the module."""
        names = [argument.name for argument in self.g.arguments]
        chance = self.chance
        if "alias" in self.g.wants and chance.random() < (0.3 if first else 0.5):
            one, two = (names.index(name) for name in self.g.wants["alias"])
            late, early = max(one, two), min(one, two)
            is_tensor = self.g.arguments[early].is_tensor
            how = chance.choice(
                ["p{0}", "p{0}", "p{0}[:]", "p{0}.view(p{0}.shape)", "p{0}.detach()", "p{0}.flip(0)"]
                if is_tensor
                else ["p{0}", "p{0}", "list(p{0})"]
            )
            texts[late] = f"p{late} = {how.format(early)}"
        elif "argument from" in self.g.wants and chance.random() < (0.3 if first else 0.5):
            name, path = self.g.wants["argument from"]
            index = names.index(name)
            texts[index] = f"p{index} = {path}"
        elif chance.random() < 0.1:
            tensors = [index for index, argument in enumerate(self.g.arguments) if argument.is_tensor]
            if len(tensors) > 1:
                one, two = sorted(chance.sample(tensors, 2))
                texts[two] = f"p{two} = p{one}" + chance.choice(["", "", "[:]", ".detach()"])

    def _passed(self, first: bool) -> list[str]:
        positional, keywords = [], []
        arguments: list[tuple[int, Argument]] = list(enumerate(self.g.arguments))
        plain = [item for item in arguments if item[1].default is None and not item[1].is_keyword]
        defaults = [item for item in arguments if item[1].default is not None and not item[1].is_keyword]
        by_name = False
        for index, argument in [*plain, *defaults]:
            if argument.default is not None and self.chance.random() < 0.25:
                by_name = True
                continue
            by_name = by_name or self.chance.random() < 0.1
            if by_name:
                keywords.append(f"{argument.name}=p{index}")
            else:
                positional.append(f"p{index}")
        for index, argument in arguments:
            if argument.is_keyword and not (argument.default is not None and self.chance.random() < 0.3):
                keywords.append(f"{argument.name}=p{index}")
        return [*positional, *keywords]
