"""Draws a case from its seed: a method, how it is cached, and calls in several launches."""

from __future__ import annotations

import random
import warnings
from typing import Any

from benchmarks.fuzz.case import Case, Phase
from benchmarks.fuzz.varying import lines
from benchmarks.fuzz.varying.calls import draw_calls
from benchmarks.fuzz.varying.draft import Draft
from benchmarks.fuzz.varying.parameters import add_numbers, add_state, add_tensors

#: The mark of a case whose later launches are separate processes.
NEW_PROCESS = "new process"
#: The mark of a case in which a call depends on earlier calls.
IN_ORDER = "in order"


def draw_case(seed: str, backend: str) -> Case:
    """Return the case of a seed (`SEED:NUMBER`)."""
    chance = random.Random(f"varying {seed}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draft, result = _drafted(chance)
        options = _options(chance, draft)
        attached = chance.random() < 0.2
        if attached:
            draft.method = "forward"
            build, target = f"m = attach(s.Model(), {options})", "m"
        else:
            draft.wants["decorators"] = [f"    @cached({options})"]
            build, target = "m = s.Model()", "m.compute"
        source = draft.text(result=result)
        launches = draw_calls(chance, draft, source, build, target)
    is_last = [False] * (len(launches) - 1) + [True]
    phases = tuple(Phase(source, tuple(steps), hits) for steps, hits in zip(launches, is_last, strict=True))
    marks = [NEW_PROCESS] if chance.random() < 0.15 else []
    marks += [IN_ORDER] if draft.has_order else []
    features = (*marks, *draft.features, *(number.place for number in draft.numbers))
    return Case(f"varying_{seed.replace(':', '_')}", seed, backend, phases, tuple(dict.fromkeys(features)))


def _drafted(chance: random.Random) -> tuple[Draft, str]:
    """Return a draft of a method, and its result."""
    while True:
        draft = Draft(chance, wants={"odd names": 0.0, "gears": []})
        add_tensors(draft)
        add_numbers(draft)
        if "B" in draft.sizes and chance.random() < 0.3:
            draft.wants["gears"] = chance.choice([[1, 2, 4], [2, 3], [2, 4, 8], [1, 3], [3, 5]])
        groups = [*lines.GROUPS, *((group, lines.STATE_WEIGHT) for group in add_state(draft))]
        wanted = chance.choice([1, 2, 2, 3, 3, 4, 5, 7])
        for _ in range(wanted * 4):
            group = chance.choices([group for group, _ in groups], [weight for _, weight in groups])[0]
            wanted -= draft.line(chance.choice(group))
            if wanted == 0:
                break
        result = _result(draft)
        draft.has_order = any("self.step" in line for line in draft.body) or "self.step" in result
        if draft.statement(f"result = {result}"):
            draft.body.pop()
            return draft, result


def _result(draft: Draft) -> str:
    """Return the text of the method's result: late tensors, at times ints, floats and bools, in some structure."""
    chance = draft.chance
    arguments = {parameter.name for parameter in draft.parameters}
    made = [name for name in draft.tensors() if name not in arguments] or draft.tensors()
    given = chance.sample(made[-4:], min(len(made), chance.choice([1, 1, 2, 3])))
    if chance.random() < 0.1:
        given.append(chance.choice(draft.tensors()))
    if draft.wants["gears"] or chance.random() < 0.9:  # a method of views alone is refused, and so are unused gears
        given.append(chance.choice(["x * 2", "x + 1", "-x", "x.cos()"]))
    for _ in range(chance.choice([0, 0, 1, 2])):
        kind = chance.choice(["small", "size", "plain", "plain", "float", "bool"])
        given.append(draft.condition() if kind == "bool" else draft.number_text(kind))
    chance.shuffle(given)
    luck = chance.random()
    if len(given) == 1 and luck < 0.7:
        return given[0]
    if luck < 0.15:
        return "{" + ", ".join(f'"r{index}": {text}' for index, text in enumerate(given)) + "}"
    if luck < 0.25:
        return "[" + ", ".join(given) + "]"
    return "(" + ", ".join(given) + ",)"


def _options(chance: random.Random, draft: Draft) -> str:
    """Return the options of the cached method, and record the gears."""
    dynamic = chance.choices([True, None, False], [5, 5, 1])[0]
    options: dict[str, Any] = {"dynamic": dynamic}
    config: dict[str, Any] = {}
    draft.features.append(f"dynamic={dynamic}")
    draft.wants["static"] = dynamic is False
    if draft.wants["gears"]:
        options["gears"] = {"x": {0: draft.wants["gears"]}}
        draft.features.append("gears")
        if chance.random() < 0.2:
            config["on_miss"] = chance.choice(["compile", "eager"])
    if chance.random() < 0.06:
        config["max_variants"] = chance.choice([1, 2, 3])
        draft.features.append("max_variants")
    if config:
        options["config"] = config
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
