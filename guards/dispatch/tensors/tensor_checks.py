"""Check the tensors of one graph with C functions, one for each kind of call seen so far.

A C check compares one kind of tensors (plain or parameter, with or without grad, made inside or outside of inference
mode) under one mode of the call, and a graph accepts any mixture. Each of the first few mixtures gets a check of all
tensors, the fastest form. A graph that sees more mixtures checks tensor by tensor, where there are few kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from msgspec import Struct

from gearcache.guards.dispatch.stored.variant import StoredGear
from gearcache.guards.dispatch.tensors.native import dispatch_state, tensor_check, tensor_kind

#: Checks of all tensors that a graph keeps before it checks tensor by tensor, and kinds kept of each tensor then.
_MAX_WHOLE = 6
_MAX_SINGLE = 32


class _Alternative(Struct, frozen=True):
    """One C check, and whether it holds only with grad mode off, or only in inference mode."""

    kind: Any
    check: Callable[..., bool]
    without_grad: bool
    in_inference_mode: bool

    def holds(self, *tensors: torch.Tensor) -> bool:
        if self.without_grad and torch.is_grad_enabled():
            return False
        return self.check(*tensors) and (not self.in_inference_mode or torch.is_inference_mode_enabled())


class TensorChecks:
    """The checks for the tensors of a graph. `add` is called under the lock of the method."""

    def __init__(self, gear: StoredGear, weights: Collection[int] = ()) -> None:
        self._gear = gear
        #: Which tensors are weights of modules: the graph runs without autograd, so these may require grad.
        self._weights = weights
        self._whole: list[_Alternative] = []
        #: Per tensor, after too many mixtures.
        self._single: list[list[_Alternative]] = []

    def __bool__(self) -> bool:
        return bool(self._whole or self._single)

    def __len__(self) -> int:
        return len(self._whole) + sum(map(len, self._single))

    def admit(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether such tensors pass under the current modes."""
        if not self._single:
            return any(alternative.holds(*tensors) for alternative in self._whole)
        pairs = zip(self._single, tensors, strict=True)
        is_each = all(any(alternative.holds(tensor) for alternative in kinds) for kinds, tensor in pairs)
        return is_each and len(set(map(id, tensors))) == len(tensors)

    def add(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Accept tensors of these kinds under the current modes, at any fitting sizes; False if they already pass."""
        every = range(len(tensors))
        if not self._single:
            if not self._add(self._whole, _MAX_WHOLE + 1, every, tensors):
                return False
            if len(self._whole) <= _MAX_WHOLE:
                return True
            self._whole, self._single = [], [[] for _ in every]
        added = [self._add(self._single[index], _MAX_SINGLE, [index], tensors) for index in every]
        return any(added)

    def source(self, names: Sequence[str], namespace: dict[str, Any]) -> str:
        """Return the condition on the tensors of these names as Python source; adds the objects in it to
        `namespace`.
        """
        if not self._single:
            return self._any(self._whole, ", ".join(names), namespace)
        parts = [
            f"({self._any(kinds, name, namespace)})" for kinds, name in zip(self._single, names, strict=True) if kinds
        ]
        identities = ", ".join(f"id({name})" for name in names)
        return " and ".join([*parts, f"len({{{identities}}}) == {len(names)}"])

    def _any(self, alternatives: list[_Alternative], arguments: str, namespace: dict[str, Any]) -> str:
        texts = []
        for alternative in alternatives:
            name = f"check{len(namespace)}"
            namespace[name] = alternative.check
            text = f"{name}({arguments})"
            if alternative.without_grad:
                namespace["is_grad_enabled"] = torch.is_grad_enabled
                text += " and not is_grad_enabled()"
            if alternative.in_inference_mode:
                namespace["is_inference_mode_enabled"] = torch.is_inference_mode_enabled
                text += " and is_inference_mode_enabled()"
            texts.append(text)
        return " or ".join(texts)

    def _add(
        self, alternatives: list[_Alternative], limit: int, indices: Sequence[int], tensors: Sequence[torch.Tensor]
    ) -> bool:
        """Append a check for some of the tensors, dropping the oldest beyond the limit; False if their kind has one."""
        gear, selected_tensors = self._gear, [tensors[index] for index in indices]
        kind = (dispatch_state(), [tensor_kind(tensor) for tensor in selected_tensors])
        if any(alternative.kind == kind for alternative in alternatives):
            return False
        check = tensor_check(
            selected_tensors, [gear.sizes[index] for index in indices], [gear.strides[index] for index in indices]
        )
        # In inference mode a normal tensor has the same keys as an inference tensor outside, which must not be written.
        is_written = any(index in gear.written for index in indices) and not gear.in_inference_mode
        in_inference_mode = is_written and torch.is_inference_mode_enabled()
        requires_grad = any(tensors[index].requires_grad for index in indices if index not in self._weights)
        alternatives.append(_Alternative(kind, check, requires_grad, in_inference_mode))
        del alternatives[:-limit]
        return True
