"""What private functions of torch do where no other test of gearcache would show it.

That they are there, with the parameters on record, is shown for all of them by `tests/test_torch_release.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.turns import turn
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import symbols as private_symbols


def test_traces_compute_tensors_of_known_values_by_torchs_own_operators_alone(tmp_path: Path) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.library._scoped_library("gearcache_computed", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        ran: list[object] = []
        library.impl("twice", lambda x: ran.append(x) or x * 2, "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")

        def work(x: torch.Tensor) -> torch.Tensor:
            own = torch.tensor(3.0) + 1
            assert own.item() == 4.0
            return x * torch.ops.gearcache_computed.twice(own)

        with turn(), private_fake.fake_mode() as mode:
            made = make_fx(work, _allow_non_fake_inputs=True)(torch.empty(2))
        assert (ran, "gearcache_computed.twice" in made.code) == ([], True)
        del mode


class _NothingDispatched(TorchDispatchMode):
    """Stands for the fake tensors of a trace, which fail at a tensor that is not fake."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was dispatched")


@pytest.mark.parametrize(
    "within",
    [
        lambda: torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.Meta),
        torch._C._AutoDispatchBelowAutograd,
        torch.inference_mode,
    ],
    ids=["fake kernel", "below autograd", "inference mode"],
)
def test_the_memory_of_tensors_is_exchanged_and_given_up_unseen_by_modes(within: Callable[[], Any]) -> None:
    runner = SimpleNamespace(update_constant_buffer=lambda *given: None)
    for dtype in (torch.float32, torch.int8):
        bound, other = torch.ones(3, dtype=dtype), torch.zeros(3, dtype=dtype)
        nothing = private_core.without_memory({"x": bound})
        with _NothingDispatched(), within():
            private_core.rebind(runner, {"x": bound}, {"x": other})
        assert bound.data_ptr() == other.data_ptr()
        with _NothingDispatched(), within():
            assert private_core.emptied({"x": bound}, nothing)
        assert (bound.numel(), other.numel(), bound.dtype) == (0, 3, dtype)


def test_an_int_that_is_traced_without_a_value_is_refused() -> None:
    from torch._dynamo.source import LocalSource

    env = private_fake.shape_env()
    with torch.compiler.config.patch(unbacked_sources="L['n']"):
        symbol = env.create_unbacked_symint().node.expr
    env.var_to_sources[symbol] = [LocalSource("n")]
    with pytest.raises(CaptureError, match=r"`L\['n'\]` is an int that torch was told to trace without a value"):
        private_symbols.number_sources(env)
