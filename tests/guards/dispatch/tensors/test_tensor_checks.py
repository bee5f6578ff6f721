"""The checks of a graph's tensors admit every mixture of kinds that was added, and stay few."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch

from gearcache.guards.dispatch.generated import define
from gearcache.guards.dispatch.stored.variant import StoredGear
from gearcache.guards.dispatch.tensors.tensor_checks import TensorChecks

COUNT = 5
SIZES, STRIDES = [[2, None]] * COUNT, [[None, 1]] * COUNT
MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def _gear(*written: int) -> StoredGear:
    return StoredGear("", SIZES, STRIDES, [], {}, {}, written=list(written))


def _tensor(kind: str) -> torch.Tensor:
    with torch.inference_mode(kind == "inference"):
        made = torch.ones(2, 3)
    if kind == "parameter":
        return torch.nn.Parameter(made, requires_grad=False)
    return made.requires_grad_(kind == "requires grad")


def _function(checks: TensorChecks) -> Any:
    names = [f"t{index}" for index in range(COUNT)]
    namespace: dict[str, Any] = {}
    condition = checks.source(names, namespace)
    return define(f"def admits({', '.join(names)}):\n    return {condition}\n", "admits", namespace, "test")


def test_any_mixture_of_kinds_passes_once_it_was_added_and_the_checks_stay_few() -> None:
    chance = random.Random(1)
    checks, added = TensorChecks(_gear()), 0
    for _ in range(400):
        mode = chance.choice(list(MODES))
        kinds = ["plain", "inference", "parameter", *(["requires grad"] if mode != "grad" else [])]
        tensors = [_tensor(chance.choice(kinds)) for _ in range(COUNT)]
        with MODES[mode]():
            if not checks.admit(tensors):
                assert checks.add(tensors)
                added += 1
            assert checks.admit(tensors)
            checks.add(tensors)
            assert not checks.add(tensors)
            assert bool(_function(checks)(*tensors))
    assert added <= 60
    assert len(checks) <= 8 * COUNT


@pytest.mark.parametrize("mixtures", [1, 20], ids=["all tensors at once", "one by one"])
def test_what_does_not_fit_fails_in_either_form(mixtures: int) -> None:
    checks, good = TensorChecks(_gear()), [_tensor("plain") for _ in range(COUNT)]
    kinds = itertools.islice(itertools.product(["plain", "inference"], repeat=COUNT), mixtures)
    for mixture in kinds:
        checks.add([_tensor(kind) for kind in mixture])
    bad: list[Any] = [
        torch.ones(3, 3),
        torch.ones(2, 3, dtype=torch.float64),
        torch.ones(3, 2).t(),
        torch.ones(2, 3, requires_grad=True),
        torch.nn.Parameter(torch.ones(2, 3), requires_grad=False),
        good[-1],
    ]
    assert checks.admit(good)
    for tensor in bad:
        tensors = [tensor, *good[1:]]
        assert not checks.admit(tensors)
        assert not _function(checks)(*tensors)


@pytest.mark.parametrize("kind", ["plain", "inference"])
@pytest.mark.parametrize("others", [0, 20])
def test_no_inference_tensor_that_is_written_passes_outside_of_inference_mode(kind: str, others: int) -> None:
    """A ordinary tensor has the same dispatch keys in inference mode as an inference tensor outside of it."""
    checks = TensorChecks(_gear(0))
    with torch.inference_mode():
        checks.add([_tensor(kind)] + [_tensor("plain") for _ in range(COUNT - 1)])
        for mixture in itertools.islice(itertools.product(["plain", "inference"], repeat=COUNT - 1), others):
            checks.add([_tensor(kind), *map(_tensor, mixture)])
    for _ in range(2):
        with torch.no_grad():
            tensors = [_tensor("inference")] + [_tensor("plain") for _ in range(COUNT - 1)]
            assert not checks.admit(tensors)
            assert not _function(checks)(*tensors)
            tensors[0] = _tensor("plain")
            checks.add(tensors)
            assert checks.admit(tensors)
