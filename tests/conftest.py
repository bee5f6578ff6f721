"""Fixtures that every test may use."""

from __future__ import annotations

import functools
import gc
import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from gearcache.cache.keys.fingerprint import versions_component
from tests.support.collecting import collect_and_freeze, collect_seldom
from tests.support.compiling_here import compile_here
from tests.support.memory import leave_memory, settle_in_memory
from tests.support.no_threads import NoThreads

# Where the tests were started in the background, programs that they start would ignore Ctrl-C too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests may run on a busy host: how long an example takes says nothing.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")

# pytest gives handlers to loggers that do not propagate, and with one torch writes down every step of a trace.
logging.getLogger("torch.__trace").propagate = True

#: Of objects that a file may leave to the garbage collector; more are removed or frozen before the next file.
_MOST_OBJECTS = 200_000


@pytest.fixture(autouse=True)
def _variables_are_left_alone() -> Iterator[None]:
    """No test, and nothing that it calls, leaves variables of ours behind: those after it would have them."""
    before = _variables()
    yield
    assert _variables() == before


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("GEARCACHE_", "TORCHAIR_"))}


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a cache that is not yet created; this process and its children find it by default."""
    root = tmp_path / ".torchair_cache"
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(root))
    return root


@pytest.fixture
def release_of_torch(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let torch give itself out as another release, but not in keys: they note versions once in a process."""
    versions_component()
    return functools.partial(monkeypatch.setattr, torch, "__version__")


@pytest.fixture
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process compile for the test: a worker would import Inductor, for seconds, at each build.

    It is what happens where no worker can be started. `test_prewarm` and `test_staleness` show what workers make.
    """
    compile_here(monkeypatch)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> NoThreads:
    """Let the host allow no more threads, or only so many, of which the test decides."""
    limit = NoThreads()
    monkeypatch.setattr(threading.Thread, "start", lambda thread: limit.start(thread))
    return limit


def pytest_configure(config: pytest.Config) -> None:
    settle_in_memory(config)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == 0:
        leave_memory(session)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let pytest keep what it makes of the test files, as nothing writes them meanwhile: a third of a collection."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each process begin with its share of the files that have slow tests: begun last, one would keep all waiting.

    Each of them takes a run of neighbours, and processes that are done take over from the end of those of others. Files
    that need one large library are neighbours: importing transformers, or Inductor, takes ten seconds.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))]
    others = []
    for path, tests in files.items():
        if "integrations" in path.parts or path.name == "test_snippets.py":
            shares[0] += tests
        elif any("compiled_here" in getattr(test, "fixturenames", ()) for test in tests):
            shares[-1] += tests
        else:
            others.append(tests)
    others.sort(key=lambda tests: not any(test.get_closest_marker("slow") for test in tests))
    for tests in others:
        min(shares, key=len).extend(tests)
    items[:] = [item for share in shares for item in share]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector come seldom and leave out what lives until the end: it takes a tenth of the time.

    Processes that tests start keep the thresholds of Python, and so does a run with THOROUGH=1.
    """
    if not os.environ.get("THOROUGH"):
        collect_seldom()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After a file that left much behind, remove what is garbage and leave the rest out: each prewarm looks for tensors
    among all objects, which took nine times as long at the end of a run.
    """
    yield
    is_last = nextitem is None or nextitem.path != item.path
    if is_last and not os.environ.get("THOROUGH") and len(gc.get_objects()) > _MOST_OBJECTS:
        collect_and_freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests of a device that this host lacks."""
    if item.get_closest_marker("npu") and importlib.util.find_spec("torch_npu") is None:
        pytest.skip("torch_npu is not installed")
    if item.get_closest_marker("thorough") and not os.environ.get("THOROUGH"):
        pytest.skip("runs with `make test THOROUGH=1`, `make test-npu THOROUGH=1`")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
