"""A rank to whose agreement the others never come, or whose job is over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import gearcache
from gearcache.errors import CompileNotAgreed, RanksDisagree
from gearcache.ranks import agree as agreement
from gearcache.ranks import seat
from gearcache.ranks.job import Job, _Connection
from gearcache.ranks.team import Team
from tests.support.rank_actors import Net, cached

RESULT = 20.0


class DeadStore:
    """A store whose host is gone: a new connection never comes about."""

    def clone(self) -> Any:
        time.sleep(30)


def be_rank(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the second rank of two, of which the first never comes."""
    job = Job(1, 2, _Connection(store))
    monkeypatch.setattr(seat, "GRACE", 0.2)
    monkeypatch.setattr(agreement, "present_job", lambda: job)


def test_what_an_agreed_rank_only_logs_may_fail(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(0, 1, _Connection(torch.distributed.HashStore()))
    monkeypatch.setattr(agreement, "present_job", lambda: job)
    told = Mock(side_effect=KeyError("x"))
    monkeypatch.setattr(Team, "tell_what_is_left_out", told)
    gearcache.agree(cached(Net(), "decode"))
    assert told.called


@pytest.mark.parametrize("store", ["alive", "dead"])
def test_where_another_rank_never_comes_this_one_compiles_nothing(
    cache_dir: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_rank(torch.distributed.HashStore() if store == "alive" else DeadStore(), monkeypatch)
    net, x = Net(), torch.ones(2, 4)
    method = cached(net, "decode")
    begin = time.monotonic()
    with pytest.raises(RanksDisagree) as caught:
        gearcache.agree(net, timeout=0.2)
    assert caught.value.rank == 0
    with pytest.raises(CompileNotAgreed):
        method(x)
    # What docs/ranks.md says for a program that goes on without graphs.
    torch.compiler.set_stance("force_eager")
    assert float(method(x).sum()) == RESULT
    assert method.stats.eager_reasons == {"stance": 1}
    torch.compiler.set_stance("default")
    assert time.monotonic() - begin < 15
    assert method.stats.compiles == 0
    monkeypatch.undo()
    # The job is over: without one the methods compile again.
    gearcache.agree(net)
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(cache_dir))
    assert float(method(x).sum()) == RESULT
    assert method.stats.compiles == 1
