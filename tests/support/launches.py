"""A method served by two launches: the first one compiles, the second one traces nothing over the same entries."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

import gearcache
from tests.support.compared import assert_same
from tests.support.scenarios import strict_config


def serve_twice(
    make: Callable[[], nn.Module], name: str, calls: Iterable[tuple[Any, ...]], *, again: int = 0, **options: Any
) -> list[Any]:
    """Serve calls of a method by a cached method for each launch, beside a module that runs eagerly.

    Results, arguments and what the calls leave in the modules are equal, and the second launch takes at most `again`
    traces. Returns the two cached methods.
    """
    served: list[Any] = []
    for _ in range(2):
        ours, theirs = make(), make()
        theirs.load_state_dict(ours.state_dict())
        served.append(gearcache.cache_compile(getattr(ours, name), **{"config": strict_config(), **options}))
        for given in calls:
            mine, other = copy.deepcopy(given), copy.deepcopy(given)
            with torch.no_grad():
                assert_same((served[-1](*mine), mine), (getattr(theirs, name)(*other), other))
            assert_same(_left(ours), _left(theirs))
    assert served[1].stats.traces <= again
    return served


def _left(module: nn.Module) -> dict[str, Any]:
    """What a call may leave in a module besides its children."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return own | dict(module.state_dict())
