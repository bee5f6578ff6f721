"""Draws the calls of a case and spreads them over launches; each is first tried on the method itself."""

from __future__ import annotations

import random
import sys
import types
from typing import Any

import torch

from benchmarks.fuzz import world
from benchmarks.fuzz.case import ARGUMENTS, Step
from benchmarks.fuzz.varying.draft import Draft
from benchmarks.fuzz.varying.values import Values, next_values

#: The attributes that callers set on the module before a call.
STATE = "state"
#: Attempts to draw a call that the method itself can serve.
_TRIES = 8
_LARGEST = 300_000


def draw_calls(chance: random.Random, draft: Draft, source: str, build: str, target: str) -> list[list[Step]]:
    """Return the steps of each launch; the last one repeats all calls."""
    number = min(12, 3 + int(chance.expovariate(0.6)))
    if draft.wants["static"]:
        number = min(number, 5)
    method = _Method(source, draft.method)
    fixed = {size for size in draft.sizes if chance.random() < 0.3}
    drawn: list[Values] = []
    calls: list[list[Step]] = []
    for index in range(number):
        for attempt in range(_TRIES):
            sizes = [size for size in draft.sizes if not drawn or size not in fixed]
            values = next_values(chance, draft.numbers, sizes, drawn, draft.wants["gears"])
            values["seed"] = chance.randrange(50)
            steps = _call(draft, values, target, index, chance)
            if method.can(steps, target) or chance.random() < 0.04 or (attempt == _TRIES - 1 and chance.random() < 0.2):
                drawn.append(values)
                calls.append(steps)
                break
    first = Step("build", build)
    cuts = (
        sorted(chance.sample(range(1, len(calls)), min(len(calls) - 1, chance.choice([0, 0, 1, 1, 2]))))
        if calls
        else []
    )
    launches = [calls[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(calls)], strict=True)]
    return [[first, *_flat(launch)] for launch in launches] + [_repeated(chance, draft, first, launches)]


def _flat(calls: list[list[Step]]) -> list[Step]:
    return [step for steps in calls for step in steps]


def _repeated(chance: random.Random, draft: Draft, first: Step, launches: list[list[list[Step]]]) -> list[Step]:
    """Return the launch that has to find everything stored: all calls, in another order if they are independent."""
    if draft.has_order:
        return [step for launch in launches for step in [first, *_flat(launch)]]
    calls = [steps for launch in launches for steps in launch]
    chance.shuffle(calls)
    return [first, *_flat(calls)]


def _call(draft: Draft, values: Values, target: str, index: int, chance: random.Random) -> list[Step]:
    """Return the steps of one call: the attributes set on the module, the tensors, and the call itself."""
    made, positional, named = [], [target], []
    in_order = [item for item in draft.parameters if not item.is_keyword]
    by_name = chance.random() < 0.12
    for parameter in [*in_order, *(item for item in draft.parameters if item.is_keyword)]:
        text = parameter.text(values)
        if parameter.is_tensor or parameter.name == "xs" or text[0] in "{[(s":
            made.append(f"p{len(made)} = {text}")
            text = f"p{len(made) - 1}"
        elif parameter.default is not None and text == parameter.default:
            continue
        if parameter.is_keyword or (by_name and parameter.name != "x"):
            named.append(f"{parameter.name}={text}")
        else:
            positional.append(text)
    steps = [Step(STATE, "\n".join(set_(values) for set_ in draft.setters))] if draft.setters else []
    steps.append(Step(ARGUMENTS, "\n".join(made)))
    return [*steps, Step("call", f"out{index} = run({', '.join([*positional, *named])})")]


class _Method:
    """The method itself, on a new module for each call."""

    def __init__(self, source: str, name: str) -> None:
        self._plain = world.World.__new__(world.World)
        self._plain.is_cached = False
        self._space = types.ModuleType("varying_tried")
        sys.modules["varying_tried"] = self._space
        with self._plain.entered():
            exec(compile(source, "<varying>", "exec"), self._space.__dict__)  # noqa: S102
        self._name = name

    def can(self, steps: list[Step], target: str) -> bool:
        """Whether the method serves a call, with results of some size."""
        results: list[Any] = []

        def run(function: Any, *args: Any, **kwargs: Any) -> Any:
            results.append(function(*args, **kwargs))
            return results[0]

        space = {"s": self._space, "m": self._space.Model(), "tensor": world.tensor, "run": run, "torch": torch}
        try:
            with torch.no_grad():
                for step in steps:
                    exec(step.text, space)  # noqa: S102
        except Exception:
            return False
        return all(item.numel() < _LARGEST for item in _tensors(results))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (list, tuple)) else []
