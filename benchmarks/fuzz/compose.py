"""Draws one case: a module of a few features, a wrapper, calls, and edits between them and between processes."""

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
    objects,
    operators,
    state,
)
from benchmarks.fuzz.model_edits import model_edits
from gearcache.cache.keys.module_tree import named_parameters

MODES = ("", "torch.no_grad()", "torch.inference_mode()")


def draw_case(seed: str, backend: str) -> Case:
    """Return the case of a seed."""
    chance = random.Random(seed)
    for _ in range(5):
        g = Builder(chance)
        try:
            _body(g)
            return _Steps(g, _result(g), seed, backend).case()
        except Exception as error:  # names that the class mangles, or lines after which nothing can follow
            last = error
    raise last


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
        has_batch = first is not None and self._has_batch(first.name)
        batched = [name for name in (item.name for item in self.g.arguments if item.is_tensor) if self._has_batch(name)]
        weights = [5, 3, 2, 2 if has_batch else 0, 2 if len(batched) > 1 else 0]
        kind = self.chance.choices(["static", "dynamic", "automatic", "gears", "product"], weights)[0]
        self.is_product = kind == "product"
        lists = self.chance.sample(["[1, 3]", "[3, 2, 1]", "[3, 1]", "[1, 2, 3]"], 2)
        axes = ", ".join(f"{name!r}: {{0: {sizes}}}" for name, sizes in zip(batched, lists, strict=False))
        parts = {
            "static": ["dynamic=False"],
            "dynamic": self.chance.choice([["dynamic=True"], []]),
            "automatic": ["dynamic=None"],
            "gears": [f"gears={{{first.name!r}: {{0: {self.chance.choice(['[3, 2]', '[2, 3, 5]', '[1, 3]'])}}}}}"]
            if first
            else [],
            "product": [f"gears={{{axes}}}, config={{'policy': 'product'}}"],
        }[kind]
        if self.is_product:
            return parts[0]
        if self.chance.random() < 0.1:
            miss = self.chance.choice(["compile", "eager", "raise"])
            parts = [*parts, f"config={{'on_miss': {miss!r}}}"]
        return ", ".join(parts)

    def _has_batch(self, name: str) -> bool:
        value = self.g.space().get(name)
        return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == TRIED

    def case(self) -> Case:
        """Return the case."""
        g = self.g
        steps = [self._build(), *self._call(first=True)]
        self.began_around, self.first_passed = self.is_around, self.last_passed
        if self.chance.random() < 0.6:
            steps += self._call()
        for _ in range(self.chance.choices([0, 1, 2], [3, 5, 2])[0]):
            steps += self._edit()
            steps += self._call(again=self.chance.random() < 0.5)
        self.arguments = next((step for step in steps if step.label == ARGUMENTS), None)
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
        called, was_around = self._call(first=True), self.is_around
        is_repeated = kind == "same" and self.arguments is not None and self.chance.random() < 0.7
        if is_repeated:
            called = [self.arguments if step.label == ARGUMENTS else step for step in called]
        steps += called
        if self.chance.random() < 0.5:
            if self.chance.random() < 0.5:
                steps += self._edit()
            steps += self._call(again=self.chance.random() < 0.3)
        # The second process has to find the entry: another mode of the call or of the build is not a reason to trace. A
        # set is, and so is an argument that was left out before, or given by position where a wrapper takes `*args`.
        is_stable = not (self.g.wants.get("second process") or was_around or self.began_around)
        is_stable = is_stable and self.first_passed == self.last_passed
        return Phase(source, tuple(steps), hits=is_repeated and is_stable)

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
        # The features' own edits are more relevant than those for any model.
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
                f"p{index} = {argument.value(chance, self._batch(batch), 0 if first else self.number + 1)}"
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
        passed = self._passed()
        if first:
            self.last_passed = passed
        target = {"decorator": f"m.{self.g.method}", "attribute": "m.served", "outside": "served"}[self.style]
        call = f"out{self.calls} = run({', '.join([target, *passed])})"
        if self.g.wants.get("generator"):
            call = f"out{self.calls} = list(run({', '.join([target, *passed])}))"
        around = [mode] if mode else []
        if not first and self.g.wants.get("around") and chance.random() < 0.6:
            around.append(self.g.wants["around"])
        if chance.random() < 0.05:
            around.append(self._around())
        if first:
            self.is_around = bool(around) and around != [mode]
        if around:
            call = f"with {', '.join(around)}:\n    {call}"
        steps.append(Step("call", call))
        if chance.random() < 0.12:
            steps.append(Step("result written", f"spoil(out{self.calls})" if f"out{self.calls} " in call else "pass"))
        if chance.random() < 0.05:
            steps.append(Step("argument written outside", "spoil(p0)"))
        return steps

    def _batch(self, common: int) -> int:
        """Return the batch of one argument: its own if each dim has its own gears."""
        return self.chance.choice([1, 2, 3]) if self.is_product and self.chance.random() < 0.6 else common

    def _around(self) -> str:
        """Return a context in which a call may be made."""
        names = [name for name, _ in named_parameters(self.g.instance())]
        found = [
            "torch.autocast('cpu', dtype=torch.bfloat16)",
            "torch.device('cpu')",
            "torch.inference_mode(False)",
            "torch.enable_grad()",
            "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)",
            "torch.autograd.set_detect_anomaly(True)",
            "torch.set_grad_enabled(False)",
            "Counting()",
            "torch.overrides.BaseTorchFunctionMode()",
        ]
        if names:
            name = self.chance.choice(names)
            value = f"{{{name!r}: m.get_parameter({name!r}).detach() * 2 + 1}}"
            found += [f"torch.nn.utils.stateless._reparametrize_module(m, {value})"] * 6
        return self.chance.choice(found)

    def _relate(self, texts: list[str], first: bool) -> None:
        """Make arguments identical or share memory, or take them from the module."""
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

    def _passed(self) -> list[str]:
        positional, keywords = [], []
        arguments: list[tuple[int, Argument]] = list(enumerate(self.g.arguments))
        by_position = [item for item in arguments if not item[1].is_keyword and not item[1].stars]
        by_name, has_rest = False, any(item.stars == "*" for item in self.g.arguments)
        for index, argument in sorted(by_position, key=lambda item: item[1].default is not None):
            if not has_rest and not self.g.wants.get("slash"):
                if argument.default is not None and self.chance.random() < 0.25:
                    by_name = True
                    continue
                by_name = by_name or self.chance.random() < 0.1
            if by_name:
                keywords.append(f"{argument.name}=p{index}")
            else:
                positional.append(f"p{index}")
        for index, argument in arguments:
            if argument.stars == "*":
                positional.append(f"*p{index}")
            elif argument.stars == "**":
                keywords.append(f"**p{index}")
            elif argument.is_keyword and not (argument.default is not None and self.chance.random() < 0.3):
                keywords.append(f"{argument.name}=p{index}")
        keywords.sort(key=lambda text: text.startswith("**"))
        return [*positional, *keywords]
