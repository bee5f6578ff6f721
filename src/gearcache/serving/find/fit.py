"""Whether a call fits stored variants: their checks of its arguments, and their graphs for its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from msgspec.structs import replace

from gearcache.guards.access import NOWHERE, Access, Walker
from gearcache.guards.dispatch.function import compared_objects
from gearcache.guards.dispatch.inputs import Problem, broken_condition, find_problem
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.evidence.checks import Check, Failure, first_failure
from gearcache.guards.evidence.reason import Reason
from gearcache.serving.call.call import Call


class ArgumentCheck:
    """Checks the arguments of one call at one moment; checks that variants share are compared once."""

    def __init__(self, call: Call) -> None:
        self.call = call
        #: By the identity of a variant's checks: the checks, the objects that were compared, and the first failure.
        self._checked: dict[int, tuple[list[Check], Walker, Failure | None]] = {}

    def misfit(self, variant: StoredVariant) -> Reason | None:
        """Return the first argument check that the call fails, as the reason of a miss, or None."""
        _, _, failure = self._result(variant)
        if failure is None:
            return None
        reason, check = failure.reason("arguments"), failure.check
        return replace(reason, constant_because=variant.constants_because) if check.number_type else reason

    def tensors_of(self, variant: StoredVariant) -> tuple[Any, ...] | None:
        """Return the values of the call for the inputs of a variant; None if the variant does not fit the call."""
        return inputs_of(variant, self.call) if self.misfit(variant) is None else None

    def compared_objects(self, variant: StoredVariant) -> list[Any]:
        """Return what each argument check of a variant that fits compares with: the objects that have passed it."""
        _, walker, _ = self._result(variant)
        return compared_objects(variant, walker)

    def _result(self, variant: StoredVariant) -> tuple[list[Check], Walker, Failure | None]:
        checks = variant.call_checks
        if id(checks) not in self._checked:
            walker = Walker(self.call.scope)
            self._checked[id(checks)] = checks, walker, first_failure(checks, walker)
        return self._checked[id(checks)]


def misfit(variant: StoredVariant, call: Call) -> Reason | None:
    """Return the first argument check that a call fails, as the reason of a miss, or None."""
    return ArgumentCheck(call).misfit(variant)


def tensors_of(variant: StoredVariant, call: Call) -> tuple[Any, ...] | None:
    """Return the values of a call for the inputs of a variant; None if the variant does not fit the call."""
    return ArgumentCheck(call).tensors_of(variant)


def inputs_of(variant: StoredVariant, call: Call) -> tuple[Any, ...] | None:
    """Return the values of a call for the inputs of a variant, which may not fit the call; None if one is absent."""
    values = tuple(stored.access.find(call.scope) for stored in variant.inputs)
    return None if any(value is NOWHERE for value in values) else values


def numbers_of(variant: StoredVariant, call: Call) -> dict[str, tuple[str, float]]:
    """Return the place (as text) and the value of each number of a variant that fits the call, by name."""
    places = {str(name): Access.from_plain(path) for name, path in variant.numbers}
    return {name: (access.text, access.resolve(call.scope)) for name, access in places.items()}


def takes(variant: StoredVariant, call: Call, *, any_sizes: bool = True) -> bool:
    """Whether a variant is for tensors like those of a call: of any sizes and strides, or of one of its gears."""
    tensors = tensors_of(variant, call)
    if tensors is None or any_sizes:
        return tensors is not None and are_of_its_kind(variant, tensors)
    return any(find_problem(variant.inputs, gear, tensors) is None for gear in variant.gears)


def takes_tensors(variant: StoredVariant, call: Call) -> bool:
    """Whether a graph of a variant takes the tensors of a call: only plain arguments may keep the call from it."""
    tensors = inputs_of(variant, call)
    if tensors is None or all(find_problem(variant.inputs, gear, tensors) is not None for gear in variant.gears):
        return False
    places_of_none = [
        check.access for check in variant.call_checks if check.kind == "constant" and check.expected is None
    ]
    return not any(isinstance(place.find(call.scope), torch.Tensor) for place in places_of_none)


def problem_of(
    variant: StoredVariant, gear: StoredGear, tensors: tuple[Any, ...], numbers: Mapping[str, tuple[str, float]]
) -> Problem | None:
    """Return what keeps tensors and numbers from a graph of a variant."""
    inputs = variant.inputs
    return find_problem(inputs, gear, tensors) or broken_condition(inputs, gear, tensors, numbers)


def are_of_its_kind(variant: StoredVariant, tensors: tuple[Any, ...]) -> bool:
    """Whether only sizes and strides keep tensors from the graphs of a variant."""
    problem = find_problem(variant.inputs, variant.gears[0], tensors)
    return problem is None or problem.kind in ("shape", "stride")
