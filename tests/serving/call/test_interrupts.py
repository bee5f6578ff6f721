"""What a signal handler raises while a call is prepared, as the timeout of a request does, comes out as it is."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.cache.store import DiskStore
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.serving.find.activate import EvidenceCheck
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.entry import Entry
from tests.support.relaunch import run_python
from tests.support.sampled import sampled

X = torch.ones(2, 3)
#: Where the signal arrives: owner and name of a function that is called while a call is prepared.
PLACES: list[tuple[Any, str]] = [
    (Binding, "prepare"),
    (DiskStore, "load"),
    (DiskStore, "publish"),
    (DiskStore, "writing"),
    (Entry, "decode"),
    (EvidenceCheck, "stale_reason"),
    (private_dynamo, "compile_frame"),
    (torch.fx.GraphModule, "recompile"),
]


class Expired(Exception):
    """The time of a request is over."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def run(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


@pytest.fixture(params=sampled(["function", "method", "partial", "object"], ["method", "partial"]))
def handler(request: pytest.FixtureRequest) -> Iterator[Callable[[type[BaseException]], None]]:
    """Sets a handler of SIGUSR1 that raises."""

    def handle(kind: type[BaseException], *_: Any) -> None:
        raise kind("too late")

    class Handler:
        def __init__(self, kind: type[BaseException]) -> None:
            self.kind = kind

        def handle(self, *_: Any) -> None:
            raise self.kind("too late")

        __call__ = handle

    forms: dict[str, Callable[[type[BaseException]], Any]] = {
        "function": lambda kind: lambda *_: handle(kind),
        "method": lambda kind: Handler(kind).handle,
        "partial": lambda kind: functools.partial(handle, kind),
        "object": Handler,
    }
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda kind: signal.signal(signal.SIGUSR1, forms[request.param](kind)) and None
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", sampled([Expired, TimeoutError, SystemExit], [Expired]))
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0].__name__.rpartition('.')[2]}.{place[1]}")
def test_what_a_signal_handler_raises_comes_out_and_the_next_call_is_served(
    place: tuple[Any, str],
    kind: type[BaseException],
    strict: bool,
    handler: Callable[[type[BaseException]], None],
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name = place
    original = getattr(owner, name)
    rang: list[int] = []

    @functools.wraps(original)
    def interrupted(*arguments: Any, **keywords: Any) -> Any:
        if not rang:
            rang.append(1)
            signal.raise_signal(signal.SIGUSR1)
        return original(*arguments, **keywords)

    net = Net()
    cached = gearcache.cache_compile(net.run, config=gearcache.CompilerConfig(backend="eager", strict=strict))
    handler(kind)
    monkeypatch.setattr(owner, name, interrupted)
    with torch.no_grad(), pytest.raises(kind, match="too late") as raised:
        cached(X)
    assert raised.type is kind
    assert rang
    with torch.no_grad():
        assert torch.equal(cached(X), net.run(X))
        assert torch.equal(cached(X), net.run(X))
    assert cached.stats.faults == 0
    assert cached.stats.eager_calls == 0


@pytest.mark.parametrize("strict", [False, True])
def test_an_error_of_the_cache_is_none_of_a_handler(
    strict: bool, cache_dir: Path, handler: Callable[[type[BaseException]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    net = Net()
    cached = gearcache.cache_compile(net.run, config=gearcache.CompilerConfig(backend="eager", strict=strict))
    handler(Expired)
    monkeypatch.setattr(DiskStore, "publish", fail)
    with torch.no_grad():
        if strict:
            with pytest.raises(gearcache.GearcacheError, match="Input/output error"):
                cached(X)
        else:
            assert torch.equal(cached(X), net.run(X))


GONE = """
import json, os, sys, tempfile
import torch, gearcache

class Net(torch.nn.Module):
    def run(self, x):
        return x * 3

folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
strict = sys.argv[2] == "strict"
config = gearcache.CompilerConfig(backend="eager", strict=strict)
cached = gearcache.cache_compile(Net().run, cache_dir=sys.argv[1], config=config)
said = ""
try:
    result = cached(torch.ones(2)).tolist()
except gearcache.GearcacheError as error:
    result, said = None, str(error)
print(json.dumps([result, said, cached.stats.faults, cached.stats.eager_calls]))
"""


def test_a_working_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    result, _, faults, eager = run_python(GONE, str(tmp_path / "cache"), "lenient")
    assert (result, faults, eager) == ([3.0, 3.0], 1, 1)
    result, said, _, _ = run_python(GONE, str(tmp_path / "cache"), "strict")
    assert result is None
    assert "The working folder of this process was removed" in said
    assert "report it" not in said
