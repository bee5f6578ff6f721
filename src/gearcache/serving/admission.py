"""Decides about calls that no loaded graph serves: an error, eager, padding, or what to compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from gearcache.errors import GradientRequired, InputError, RecompileRefused, UnknownGear
from gearcache.guards.access import Access, Scope
from gearcache.guards.arguments import find_tensors
from gearcache.guards.dispatch.inputs import GRADIENT_WORDS, Problem
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.gears.parse import GearSpec, gear_text
from gearcache.serving.activate import misfit
from gearcache.serving.call_sizes import call_sizes, differing_dims
from gearcache.serving.problems import Problems
from gearcache.serving.stance import DELAYED

Gear = tuple[int, ...]


class Admission:
    """What a spec and `on_miss` allow to the calls of one method."""

    def __init__(self, name: str, spec: GearSpec, on_miss: str) -> None:
        self.name = name
        self.spec = spec
        self.on_miss = on_miss

    def refuse(self, arguments: Mapping[str, Any], problems: Problems, loaded: list[str]) -> None:
        """Raise for a call that must not be compiled: a wrong tensor, or a shape outside the declared gears.

        Otherwise say in `problems` what kind of call it is. `loaded` are the texts of the loaded gears.
        """
        sizes = call_sizes(self.spec, arguments)
        is_complete = bool(self.spec.axes) and len(sizes) == len(self.spec.axes)
        gear = gear_text(self.spec, sizes) if is_complete else None
        problem = problems.decisive(gear)
        if problem is not None and problem.kind == "grad":
            raise GradientRequired(self.name, problem.argument, problem.found, problem.allowed)
        if problem is not None and (problem.kind == "structure" or _is_of_state(problem, arguments)):
            problem = None  # another variant, as for another number among the arguments
        if problem is not None and problem.kind not in ("shape", "alias", "rank", "read"):
            raise self._error(problem)
        if problem is not None and problem.kind == "rank" and self.on_miss == "raise":
            raise self._error(problem)
        outside = self.spec.range_problem(find_tensors(arguments))
        if outside is not None:
            if self.on_miss in ("raise", "pad"):
                raise UnknownGear(self.name, *outside)
            problems.is_gear_miss = True
            return
        is_declared = problem is not None and (problem.kind == "read" or self._is_declared(problem))
        if not self.spec.axes:
            if problem is not None and self.on_miss == "raise" and not is_declared:
                raise self._error(problem)
            return
        if is_complete and sizes not in self.spec.gears:
            if self.on_miss == "raise":
                raise self.outside(arguments)
            problems.is_gear_miss = True
            return
        is_loaded = problem is not None and gear in loaded
        problems.is_assumption = is_loaded and problem is not None and problem.is_assumption
        is_allowed = is_declared or problems.is_assumption
        if problem is not None and is_loaded and self.on_miss == "raise" and not is_allowed:
            raise self._error(problem)

    def outside(self, arguments: Mapping[str, Any], reason: str | None = None) -> UnknownGear:
        """Return the error of a call outside all gears; `reason` says why it was not padded."""
        listed = "; ".join(gear_text(self.spec, gear) for gear in self.spec.gears)
        found = f"outside all gears: {gear_text(self.spec, call_sizes(self.spec, arguments))}"
        if reason:
            listed += f" (padding: {reason})"
        return UnknownGear(self.name, self.spec.axes[0].path, found, listed)

    def spec_of_build(
        self, arguments: Mapping[str, Any], missing_gears: Callable[[], list[Gear]], *, alone: bool
    ) -> GearSpec:
        """Return the gears to compile for a call: all that are missing; just its own if `alone` or not in the spec."""
        spec = self.spec
        if spec.range_problem(find_tensors(arguments)) is not None:
            spec, alone = replace(spec, ranges=()), True
        sizes = call_sizes(spec, arguments)
        if not spec.axes or len(sizes) != len(spec.axes):
            return spec
        if alone or (sizes not in spec.gears and self.on_miss != "pad"):
            return spec.only([sizes])
        missing = missing_gears()
        if not missing and spec.dynamic_axes:  # size 1 of a range
            return spec.only([sizes])
        return spec.only(missing) if len(missing) < len(spec.gears) and sizes in missing else spec

    def _is_declared(self, problem: Problem) -> bool:
        """Whether only dims differ that the spec declares to be of any size in a range (1 needs another trace)."""
        axes = [axis for axis in self.spec.dynamic_axes if axis.matches(problem.argument)]
        return problem.kind == "shape" and bool(problem.dims) and set(problem.dims) <= {axis.dim for axis in axes}

    def _error(self, problem: Problem) -> InputError:
        return InputError(self.name, problem.argument, problem.found, problem.allowed)


def _is_of_state(problem: Problem, arguments: Mapping[str, Any]) -> bool:
    """Whether it is about a weight, or about more than sizes of what the method reads by itself.

    Weights that are inputs are those of a module among the arguments, and those that the method replaces.
    """
    if problem.stored is None:
        return False
    kind, name = problem.stored.access.root
    is_given = kind == "argument" and name != next(iter(arguments))
    return problem.stored.is_weight or (not is_given and problem.kind != "shape")


class DelayedCalls:
    """The calls that a delaying stance of `torch.compiler.set_stance` passed on to eager: their sizes by path."""

    def __init__(self) -> None:
        self._sizes: list[dict[str, Gear]] = []

    def hold_back(self, name: str, arguments: Mapping[str, Any], stance: str, last_miss: str) -> bool:
        """Whether the stance has a call run eagerly that would have to compile; `RecompileRefused` if it forbids it."""
        if stance == "fail_on_recompile":
            raise RecompileRefused(name, last_miss)
        if stance in DELAYED and not self._sizes:
            self._sizes.append({path: tuple(tensor.shape) for path, tensor in find_tensors(arguments).items()})
            return True
        return stance == "eager_on_recompile"

    def changing_dims(
        self, arguments: Mapping[str, Any], scope: Scope, stored: list[StoredVariant]
    ) -> list[tuple[torch.Tensor, int]]:
        """Return the dims in which a call differs from those before: with `dynamic=None` they become dynamic."""
        tensors = find_tensors(arguments)
        found = [
            (tensor, dim)
            for sizes in self._sizes
            for path, tensor in tensors.items()
            for dim in differing_dims(tensor, sizes.get(path, ()))
        ]
        for variant in stored:
            if misfit(variant, scope) is None:
                for index, item in enumerate(variant.inputs):
                    if (tensor := _tensor_at(item.access, scope)) is None:  # of a variant of what the module was
                        continue
                    for gear in variant.gears:
                        found += [(tensor, dim) for dim in differing_dims(tensor, gear.sizes[index])]
        return found


def _tensor_at(access: Access, scope: Scope) -> torch.Tensor | None:
    try:
        value = access.resolve(scope)
    except (LookupError, AttributeError, TypeError):
        return None
    return value if isinstance(value, torch.Tensor) else None


def refuse_gradients(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise `GradientRequired` for a tensor that requires grad where autograd is on: cached methods are inference."""
    if torch.is_grad_enabled():
        for path, tensor in find_tensors(arguments).items():
            if tensor.requires_grad:
                raise GradientRequired(name, path, *GRADIENT_WORDS)
