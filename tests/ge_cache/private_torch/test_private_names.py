"""What private functions of torch do where no other test of gearcache would show it.

That they are there, with the parameters on record, is shown for all of them by `tests/test_torch_release.py`.
"""

from __future__ import annotations

from pathlib import Path

import torch

from gearcache.ge_cache.capture.turns import turn
from gearcache.ge_cache.private_torch import fake as private_fake


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
