"""What a signal handler raises while a call is prepared, as the timeout of a request does, comes out as it is."""

from __future__ import annotations

import functools
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.cache.store import DiskStore
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.serving.call.preparing import MethodLock, is_preparing, preparing
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.entry import Entry
from gearcache.serving.find.evidence import EvidenceCheck
from tests.support.relaunch import run_python
from tests.support.sampled import sampled_rows

X = torch.ones(2, 3)
#: Where the signal arrives: owner and name of a function that is called while a call is prepared.
PLACES: list[tuple[Any, str]] = [
    (Binding, "prepare"),
    (DiskStore, "load"),
    (DiskStore, "publish"),
    (Entry, "decode"),
    (EvidenceCheck, "stale_reason"),
    (private_dynamo, "compile_frame"),
    (WatchedFacts, "add_node"),
]


class Expired(Exception):
    """The time of a request is over."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def run(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


class Handler:
    """A handler of signals whose method or function raises."""

    kind: type[Exception] = Expired

    def handle(self, *_: Any) -> None:
        raise self.kind("too late")


#: `TimeoutError` is an `OSError`, as files raise it; objects of a program raise the others.
CLASSES = (Expired, TimeoutError, RuntimeError, AttributeError)


@pytest.fixture
def handled() -> Iterator[Callable[[Any], None]]:
    """Sets a handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler) and None
    signal.signal(signal.SIGUSR1, before)


#: Each place with two of the classes, and with the others too in a thorough run.
KEPT = [(place, CLASSES[(number + more) % len(CLASSES)]) for number, place in enumerate(PLACES) for more in (0, 1)]


@pytest.mark.parametrize(("place", "kind"), sampled_rows(itertools.product(PLACES, CLASSES), KEPT))
def test_what_a_signal_handler_raises_comes_out_and_the_next_call_is_served(
    place: tuple[Any, str],
    kind: type[Exception],
    handled: Callable[[Any], None],
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

    net, strict = Net(), PLACES.index(place) % 2 == 0
    cached = gearcache.cache_compile(net.run, config=gearcache.CompilerConfig(backend="eager", strict=strict))
    monkeypatch.setattr(Handler, "kind", kind)
    handled(functools.partial(Handler.handle, Handler()) if strict else Handler().handle)
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


def test_a_handler_that_warms_a_method_leaves_the_call_in_which_it_arrives_alone(
    handled: Callable[[Any], None], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    net = Net()
    cached, other = (gearcache.cache_compile(each.run, config=config) for each in (net, Net()))
    found: list[bool] = []

    def warm(*_: Any) -> None:
        other.warm(X)
        found.append(is_preparing())

    handled(warm)
    stale_reason = EvidenceCheck.stale_reason

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(EvidenceCheck, "stale_reason", stale_reason)
        signal.raise_signal(signal.SIGUSR1)
        return stale_reason(*arguments)

    monkeypatch.setattr(EvidenceCheck, "stale_reason", interrupted)
    with torch.no_grad():
        assert torch.equal(cached(X), net.run(X))
    assert found == [True]
    assert not is_preparing()
    other.warm(X)
    assert other.stats.loads == 1


class Box:
    """Something that a method reads: a signal arrives when an attribute that it lacks is read."""

    def __init__(self, **attributes: int) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> int:
        signal.raise_signal(signal.SIGUSR1)
        raise AttributeError(name)


class Reader(nn.Module):
    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box

    def run(self, x: Tensor, box: Box) -> Tensor:
        return x * self.box.level * box.level


@pytest.mark.parametrize("kind", CLASSES)
def test_what_a_handler_raises_within_an_object_of_the_program_comes_out(
    kind: type[Exception], handled: Callable[[Any], None], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "kind", kind)
    handled(Handler().handle)
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    whole, lacking = Reader(Box(level=2)), Reader(Box())
    cached, other = (gearcache.cache_compile(net.run, config=config) for net in (whole, lacking))
    with torch.no_grad():
        assert torch.equal(cached(X, Box(level=3)), X * 6)
        with pytest.raises(kind, match="too late"):  # in the dispatch
            cached(X, Box())
        with pytest.raises(kind, match="too late"):  # in the comparison of stored evidence
            other(X, Box(level=3))
        lacking.box.level = 2
        for method in (cached, other):
            assert torch.equal(method(X, Box(level=3)), X * 6)
    assert (cached.stats.traces, other.stats.traces) == (1, 0)


@pytest.mark.parametrize("kind", CLASSES)
def test_what_a_handler_raises_while_a_source_file_is_read_comes_out(
    kind: type[Exception], handled: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "kind", kind)
    handled(Handler().handle)
    monkeypatch.setattr(Path, "read_bytes", lambda _: signal.raise_signal(signal.SIGUSR1))
    with pytest.raises(kind, match="too late"):
        changed_source({"files": [[__name__, ""]]})


@pytest.mark.parametrize("kind", CLASSES)
def test_what_a_handler_raises_within_a_listener_comes_out(
    kind: type[Exception], handled: Callable[[Any], None], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "kind", kind)
    handled(Handler().handle)
    net = Net()
    cached = gearcache.cache_compile(net.run, config=gearcache.CompilerConfig(backend="eager", strict=True))
    remove = gearcache.add_listener(lambda event: signal.raise_signal(signal.SIGUSR1))
    try:
        with pytest.raises(kind, match="too late"):
            cached(X)
    finally:
        remove()
    with torch.no_grad():
        assert torch.equal(cached(X), net.run(X))
    assert (cached.stats.traces, cached.stats.faults, cached.stats.eager_calls) == (1, 0, 0)


def test_a_call_after_a_timeout_is_served_as_any_other(handled: Callable[[Any], None], cache_dir: Path) -> None:
    """What the program handles is not what a lookup in the dispatch, or in the store, has raised."""
    handled(Handler().handle)
    cached = gearcache.cache_compile(Net().run, dynamic=False, config=gearcache.CompilerConfig(backend="eager"))
    with torch.no_grad():
        try:
            signal.raise_signal(signal.SIGUSR1)
        except Expired:
            for rows in (2, 5, 2):
                assert cached(torch.ones(rows, 3)).shape == (rows, 3)
    assert (cached.stats.calls, cached.stats.eager_calls, cached.stats.faults) == (3, 0, 0)


class Ringing:
    """A lock at which a signal arrives once it was acquired."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        self.release, self._is_owned = self.lock.release, self.lock._is_owned

    def acquire(self, *arguments: Any, **keywords: Any) -> bool:
        self.lock.acquire(*arguments, **keywords)
        raise Expired


@pytest.mark.parametrize("enter", [preparing, MethodLock.held])
@pytest.mark.parametrize("waits", [True, False])
def test_a_lock_of_a_method_is_free_after_a_handler_has_raised(enter: Callable[..., Any], waits: bool) -> None:
    lock, ringing = MethodLock(), Ringing()
    lock._lock = ringing  # type: ignore[assignment]
    with pytest.raises(Expired), enter(lock, waits=waits):
        pass
    assert not is_preparing()
    assert not ringing.lock._is_owned()


GONE = """
import json, os, sys, tempfile
import torch, gearcache

class Net(torch.nn.Module):
    def run(self, x):
        return x * 3

folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
found = []
for strict in (False, True):
    config = gearcache.CompilerConfig(backend="eager", strict=strict)
    cached = gearcache.cache_compile(Net().run, cache_dir=sys.argv[1], config=config)
    try:
        result = cached(torch.ones(2)).tolist()
    except gearcache.GearcacheError as error:
        result = str(error)
    found.append([result, cached.stats.faults, cached.stats.eager_calls])
print(json.dumps(found))
"""


def test_a_working_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    lenient, (said, _, _) = run_python(GONE, str(tmp_path / "cache"))
    assert lenient == [[3.0, 3.0], 1, 1]
    assert "The working folder of this process was removed" in said
    assert "report it" not in said


IMPORTED = """
import importlib.abc, json, os, signal, sys
import torch, gearcache
from gearcache import cache_compile, CompilerConfig

class Expired(Exception):
    pass

def expire(*_):
    raise Expired

class Finder(importlib.abc.MetaPathFinder):
    # Finds nothing; a signal arrives at the first import of each of these modules.
    modules = ["sympy.printing", "torch._dynamo.variables.lazy", "torch._functorch.partitioners"]

    def find_spec(self, name, path, target=None):
        if name in self.modules:
            self.modules.remove(name)
            os.kill(os.getpid(), signal.SIGUSR1)

class Net(torch.nn.Module):
    def run(self, x):
        return x * 3

assert "torch._dynamo" not in sys.modules
signal.signal(signal.SIGUSR1, expire)
sys.meta_path.insert(0, Finder())
cached = cache_compile(Net().run, cache_dir=sys.argv[1], config=CompilerConfig(backend="eager"))
expired = 0
with torch.no_grad():
    while True:
        try:
            result = cached(torch.ones(2)).tolist()
            break
        except Expired:
            expired += 1
stats = cached.stats
print(json.dumps([expired, Finder.modules, result, stats.traces, stats.faults, stats.eager_calls]))
"""


def test_a_signal_handler_that_raises_leaves_no_half_imported_compiler(tmp_path: Path) -> None:
    expired, left, result, traces, faults, eager_calls = run_python(IMPORTED, str(tmp_path / "cache"))
    assert 1 <= expired <= 3  # a second signal may come before the first was handled
    assert (left, result, traces, faults, eager_calls) == ([], [3.0, 3.0], 1, 0, 0)


@pytest.mark.parametrize(
    "lock", ["importlib._bootstrap._get_module_lock('torch._dynamo').acquire()", "_imp.acquire_lock()"]
)
def test_a_thread_that_holds_a_lock_of_imports_imports_the_compiler_itself(lock: str, tmp_path: Path) -> None:
    holding = f"import _imp, importlib; {lock}\nsys.meta_path.insert(0, Finder())"
    program = IMPORTED.replace("sys.meta_path.insert(0, Finder())", holding).replace(
        "modules = [", "modules = []; _ = ["
    )
    expired, _, result, traces, faults, eager_calls = run_python(program, str(tmp_path / "cache"))
    assert (expired, result, traces, faults, eager_calls) == (0, [3.0, 3.0], 1, 0, 0)
