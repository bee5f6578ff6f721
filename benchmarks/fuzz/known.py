"""The complete list of accepted differences between the two worlds, each with the sentence that documents it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from benchmarks.fuzz.case import Case, Failure

#: Names in a user's dictionaries (globals of a file, attributes of tensors) that only the cached world has.
LEFT_BEHIND = {
    re.compile(
        r"_compiled_call_impl$"
    ): "docs/attach.md: an attached module is called there, as after `model.compile()`",
    re.compile(r"_dynamo_"): "Dynamo marks tensors that it has seen, as under `torch.compile`",
    re.compile(r"_\d+_c\d+$"): "Dynamo keeps constants of a trace in the globals of the file, as under `torch.compile`",
    re.compile(
        r"_gearcache "
    ): "a frame finds what Dynamo made for it under a name in the globals that no program can write",
}

#: Edits that a process sees only after `.refresh()`, once it has called: a failure that disappears with `.refresh()`
#: before each call is then accepted. Before the first call of a process such edits have to be seen.
UNSEEN = {
    "2 class of a child": "docs/limits.md: an object's `__class__` assigned as a whole is not seen until `.refresh()`"
}


def excuse(case: Case, failure: Failure) -> str:
    """Return the sentence that may excuse a failure if `.refresh()` removes it; "" if there is none."""
    labels = [step.label for step in case.phases[failure.phase].steps[: failure.step]]
    late = labels[labels.index("call") :] if "call" in labels else []
    return next((UNSEEN[label] for label in late if label in UNSEEN), "")


def is_one_layout(tensor: torch.Tensor, mine: Sequence[int], theirs: Sequence[int]) -> bool:
    """Whether strides differ only in dims of size 1, where they have no effect.

    docs/limits.md: for results of compiled code the trace determines these strides, as with `torch.compile`.
    """
    return all(size == 1 or left == right for size, left, right in zip(tensor.shape, mine, theirs, strict=True))


def is_left_behind(name: str) -> bool:
    """Whether a name is one of `LEFT_BEHIND`."""
    return any(pattern.match(name) for pattern in LEFT_BEHIND)
