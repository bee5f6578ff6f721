"""A rank to whose agreement the others never come, or whose job is over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import CompileNotAgreed, OptionError, RanksDisagree
from gearcache.ranks import agree as agreement
from gearcache.ranks.job import Job, _Connection


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        config = gearcache.CompilerConfig(backend="eager")
        signature = (gearcache.TensorSpec((2, 4), torch.float32),)
        self.cached = gearcache.cache_compile(self.run, config=config, input_signature=signature)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class DeadStore:
    """A store whose host is gone: a new connection never comes about."""

    def clone(self) -> Any:
        time.sleep(30)


def be_rank(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the second rank of two, of which the first never comes."""
    job = Job(1, 2, _Connection(store))
    monkeypatch.setattr(agreement, "present_job", lambda: job)


@pytest.mark.parametrize(("store", "how"), [("alive", "raise"), ("dead", "eager")])
def test_where_another_rank_never_comes_this_one_compiles_nothing(
    cache_dir: Path, store: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_rank(torch.distributed.HashStore() if store == "alive" else DeadStore(), monkeypatch)
    net, x = Net(), torch.randn(2, 4)
    begin = time.monotonic()
    if how == "eager":
        assert not gearcache.agree(net, timeout=0.2, on_disagree=how)
        with torch.no_grad():
            assert torch.equal(net.cached(x), net.run(x))
        assert net.cached.stats.eager_reasons == {"ranks": 1}
    else:
        with pytest.raises(RanksDisagree) as caught:
            gearcache.agree(net, timeout=0.2, on_disagree=how)
        assert caught.value.rank == 0
        with torch.no_grad(), pytest.raises(CompileNotAgreed):
            net.cached(x)
    assert time.monotonic() - begin < 15
    assert net.cached.stats.compiles == 0
    monkeypatch.undo()
    # The job is over: without one the methods compile again.
    assert gearcache.agree(net)
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(cache_dir))
    with torch.no_grad():
        assert torch.equal(net.cached(x), net.run(x))
    assert net.cached.stats.compiles == 1


def test_only_one_thread_agrees(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_rank(torch.distributed.HashStore(), monkeypatch)
    net = Net()

    def warm() -> None:
        with pytest.raises(OptionError, match="it is running in this process already"):
            gearcache.agree(net)
        net.cached.warm(torch.randn(2, 4))

    with pytest.raises(RanksDisagree):
        gearcache.agree(net, timeout=0.2, warm=warm)
