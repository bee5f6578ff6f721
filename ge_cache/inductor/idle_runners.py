"""Keep runners that no graph uses any more: the next graph of the same code binds its weights to one of them.

A container makes a handle of each weight that it is given and never frees it (torch 2.13, `MaybeOwningAtenTensorHandle`
in `aoti_runtime/utils.h`), so dropping a runner would leak a tensor for each weight. A runner is therefore kept when
its graph is freed, with its tensors emptied, which frees the memory of the weights. It also saves the next graph of the
same code the load.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from gearcache.ge_cache.private_torch import core as private_core

_idle: defaultdict[Hashable, list[tuple[Any, Mapping[str, torch.Tensor]]]] = defaultdict(list)


def run_with(code: Hashable, load: Callable[[], Any], weights: Mapping[str, torch.Tensor]) -> Callable[..., Any]:
    """Return `run` of a runner that is bound to these tensors; `load` makes one where none of this code is idle."""
    try:
        runner, bound = _idle[code].pop()
    except IndexError:
        runner, bound = load(), weights
        if weights:
            runner.update_constant_buffer(weights, False, True, True)
    else:
        private_core.rebind(runner, bound, weights)
    run: Callable[..., Any] = runner.run
    # May run at any moment, so it takes no lock: both of its steps are atomic.
    weakref.finalize(run, _set_idle, code, runner, bound, private_core.without_memory(bound)).atexit = False
    return run


def _set_idle(code: Hashable, runner: Any, bound: Mapping[str, torch.Tensor], nothing: Sequence[torch.Tensor]) -> None:
    if private_core.emptied(bound, nothing):
        _idle[code].append((runner, bound))
