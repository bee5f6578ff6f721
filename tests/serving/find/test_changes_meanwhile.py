"""The module is changed by another thread while graphs are loaded or compiled: the next call sees it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import CompileError
from gearcache.ge_cache import eager
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.serving.find import basis
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.scale = 2.0

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * self.scale


CHANGES: list[Callable[[Net], Any]] = [
    lambda net: setattr(net, "scale", 3.0),
    lambda net: setattr(net.weight, "data", torch.full((2,), 7.0)),
]
#: Where in a first call the other thread gets its turn.
MOMENTS = [(eager.EagerBackend, "load")]
MOMENTS += [(WatchedFacts, name) for name in ("begin", "add_node", "end", "add_weights")]
MOMENTS += [(basis, "joined")]


@pytest.fixture
def another_thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment[1])
@pytest.mark.usefixtures("another_thread")
def test_what_changes_during_a_load_is_seen(
    moment: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = moment
    original = getattr(owner, name)
    for number, change in enumerate(CHANGES):
        for is_after in (False, True):
            net = Net()
            pending = [change]

            def during(*arguments: Any, **keywords: Any) -> Any:
                if not is_after and pending:  # noqa: B023
                    pending.pop()(net)  # noqa: B023
                found = original(*arguments, **keywords)
                if pending:  # noqa: B023
                    pending.pop()(net)  # noqa: B023
                return found

            served = gearcache.cache_compile(
                net.compute, dynamic=False, cache_dir=tmp_path, config=strict_config("eager")
            )
            x = torch.ones(2)
            with monkeypatch.context() as patch, torch.no_grad():
                patch.setattr(owner, name, during)
                with contextlib.suppress(CompileError):  # what was compiled is outdated by now, which it says
                    served(x)
            assert not pending
            with torch.no_grad():
                assert torch.equal(served(x), net.compute(x)), (number, is_after)
                assert torch.equal(served(x[:1]), net.compute(x[:1])), (number, is_after)
                assert torch.equal(served(x), net.compute(x)), (number, is_after)
