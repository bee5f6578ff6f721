"""Every guard kind that the installed torch has is decided on, and what is refused is refused after one trace."""

from __future__ import annotations

import enum
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.guards import GuardBuilder

import gearcache
from gearcache.ge_cache.capture import translation as guards
from tests.support.scenarios import strict_config

#: Kinds that came with torch 2.14 or 2.15.
NEWER = {"COW_TENSOR_MATCH", "CURRENT_STREAM_MATCH", "LIST_REVERSEITERATOR_LEN"}


def test_every_guard_kind_has_a_translation_or_a_reason() -> None:
    kinds = {name for name in vars(GuardBuilder) if name.isupper()}
    assert guards.known_kinds() - NEWER == kinds - NEWER
    assert set(guards._REFUSED) >= NEWER


class Kind(enum.Enum):
    A, B = 1, 2


class Compiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block: Any = torch.compile(nn.Linear(4, 4), backend="eager")
        self.kind, self.kinds = Kind.A, {Kind.A, Kind.B}

    def run(self, x: Tensor) -> Tensor:
        return self.block(x)  # type: ignore[no-any-return]

    def looked_up(self, x: Tensor) -> Tensor:
        return x * 2 if self.kind in self.kinds else x


def test_a_compiled_module_is_served_beside_other_threads_unless_it_has_hooks(cache_dir: Path) -> None:
    net, x, is_done = Compiled(), torch.randn(2, 4), threading.Event()
    other = threading.Thread(target=is_done.wait)
    other.start()
    try:
        served: Any = gearcache.cache_compile(net.run, config=strict_config())
        with torch.no_grad():
            for _ in range(2):
                assert torch.equal(served(x), net.run(x))
            assert served.stats.traces == 1
            net.block.register_forward_hook(lambda module, args, output: output * 2)
            with pytest.raises(gearcache.errors.CaptureError, match=r"hooks of what `torch\.compile` returned"):
                served(x)
        assert served.stats.traces == 2
    finally:
        is_done.set()
        other.join()


def test_a_guard_that_cannot_be_compared_is_refused_after_one_trace(cache_dir: Path) -> None:
    served: Any = gearcache.cache_compile(Compiled().looked_up, config=strict_config())
    with pytest.raises(gearcache.errors.UncacheableGuard):
        served(torch.ones(2))
    assert served.stats.traces == 1
