"""Whatever faults, the cache and what stands in for it: the call answers as the method does, with one warning."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.cache.layout import Layout
from gearcache.cache.memory import MemoryStore
from gearcache.cache.store import DiskStore
from gearcache.errors import GearcacheError, MissingTorchNames
from gearcache.serving.find import bindings
from tests.product.test_disk import needs_mount, run_mounted
from tests.support.relaunch import run_python

GEARS = {"x": {0: [2, 3]}}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.scale = 2.0

    def run(self, x: torch.Tensor, flag: bool = True) -> dict[str, Any]:
        hidden = torch.relu(self.linear(x)) * self.scale + torch.arange(x.shape[0])[:, None]
        return {"hidden": hidden, "row": hidden[0], "flag": flag, "weight": self.linear.weight}


class Served:
    """A fresh module with a fresh cached method."""

    def __init__(self, root: Path | str, **options: Any) -> None:
        self.net = Net()
        config = gearcache.CompilerConfig(backend="eager", **options)
        self.cached = gearcache.cache_compile(self.net.run, config=config, cache_dir=str(root), gears=GEARS)

    def answers(self, *sizes: int) -> bool:
        with torch.no_grad():
            for size in sizes:
                x = torch.randn(size, 4)
                found, expected = self.cached(x), self.net.run(x)
                assert found["weight"] is expected["weight"]
                assert found["flag"] is True
                if not all(torch.equal(found[name], expected[name]) for name in ("hidden", "row")):
                    return False
        return True


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# -- faults of the surroundings -----------------------------------------------------------------------------


def test_a_key_of_signatures_that_cannot_be_had(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = cache_dir.parent / "key"
    monkeypatch.setenv("GEARCACHE_HMAC_KEY_FILE", str(key))
    served = Served(cache_dir)
    with caplog.at_level(logging.WARNING):
        assert served.answers(2, 3, 2)
    assert served.cached.stats.traces == 1
    assert served.cached.stats.faults >= 1
    (warning,) = warnings_of(caplog)
    assert str(key) in warning
    assert sum(served.cached.stats.gears.values()) == 3, "graphs are loaded from memory"
    with pytest.raises(GearcacheError, match="key"):
        Served(cache_dir, strict=True).answers(2)


def test_a_cache_that_cannot_be_written_and_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    importlib.import_module("torch._inductor.codecache")  # it keeps the temporary folder that there is at its import
    (tmp_path / "file").write_bytes(b"mine")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    served = Served(tmp_path / "file" / "cache")
    assert served.answers(2, 3)
    assert len(warnings_of(caplog)) == 1
    assert sum(served.cached.stats.gears.values()) == 2
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_an_entry_that_is_gone_between_publish_and_load(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = DiskStore.publish

    def losing(self: DiskStore, *arguments: Any) -> Any:
        made = publish(self, *arguments)
        shutil.rmtree(Layout(cache_dir).blobs_folder)
        return made

    monkeypatch.setattr(DiskStore, "publish", losing)
    served = Served(cache_dir)
    assert served.answers(2, 3, 2)
    assert served.cached.stats.traces == 1
    assert sum(served.cached.stats.gears.values()) == 3


@needs_mount
def test_one_disk_for_all_that_is_full(tmp_path: Path) -> None:
    found = run_mounted(tmp_path / "disk", "size=400k", "nowhere")
    assert (found["compiles"], found["hits"]) == (2, 0)
    (warning,) = found["warnings"]
    assert "No space left on device" in warning


#: Prints what came of each limit, met by a fork of its own.
LIMITED = """
import json, os, resource, signal, sys, tempfile, traceback
from pathlib import Path
import torch
from tests.serving.test_faults import Served
root = Path(sys.argv[1])
Served(root / "warm").answers(2, 3)  # all modules are imported by then
Served(root / "warm").answers(2, 3)
Served("/proc/nowhere").answers(2)
found = {}
for what in sys.argv[2:]:
    result, report = os.pipe()
    os.set_inheritable(report, True)
    if os.fork() == 0:
        break
    os.close(report)
    found[what] = json.loads(os.fdopen(result).read() or "null")
    os.wait()
else:
    print(json.dumps(found))
    sys.exit()
os.close(result)
served = Served(root / what)
if what == "files":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
elif what == "umask":
    os.setgid(65534); os.setuid(65534); os.umask(0o777)
else:
    opened = [os.open("/dev/null", os.O_RDONLY)]
    free = int(what)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[0] + 1 + free, opened[0] + 1 + free))
try:
    right = served.answers(2, 3, 2)
    stats = served.cached.stats
    os.write(report, json.dumps([right, stats.faults, stats.traces, stats.calls]).encode())
except BaseException:
    os.write(report, json.dumps([traceback.format_exc(), 0, 0, 0]).encode())
finally:
    os._exit(0)
"""
#: Some free descriptors, files of no length, and files that nobody may use.
LIMITS = ["0", "2", "5", "files", *(["umask"] if os.geteuid() == 0 else [])]


@pytest.mark.slow
def test_a_process_that_may_not_do_much(subtests: pytest.Subtests) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not in tmp_path, which only its owner may enter
        Path(folder).chmod(0o1777)
        limited = run_python(LIMITED, folder, *LIMITS, compiles=True)
    for what, (right, faults, traces, calls) in limited.items():
        with subtests.test(what):
            assert right is True, right
            assert traces <= 1
            assert calls == 3
            assert faults >= 1 or what == "5", "so many descriptors may do"


# -- faults of any part -------------------------------------------------------------------------------------

#: Methods of the store, and in which caches each is called.
METHODS = {
    "lookup": ["cold", "present"],
    "exclusive": ["cold"],
    "put_blob": ["cold"],
    "publish": ["cold"],
    "load": ["present"],
    "use": ["present"],
    "count_load": ["present"],
    "read_blob": ["present"],
}


class Fault:
    """Makes a method of a class raise, from its n-th call on."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str, after: int, error: Exception) -> None:
        original, left = getattr(owner, name), [after]

        def faulty(*arguments: Any, **keywords: Any) -> Any:
            if left[0] == 0:
                raise error
            left[0] -= 1
            return original(*arguments, **keywords)

        patch.setattr(owner, name, faulty)


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has all that is asked for."""
    root = tmp_path_factory.mktemp("faults") / "present"
    Served(root).answers(2, 3)
    return root


@pytest.mark.parametrize("name", METHODS)
def test_any_method_of_the_store_may_raise_anything(
    cache_dir: Path, present: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(present, cache_dir / "present")
    later = [("cold", MemoryError(), 1)] if name == "put_blob" else []
    for root, error, after in [*((root, RuntimeError("odd"), 0) for root in METHODS[name]), *later]:
        shutil.rmtree(cache_dir / "cold", ignore_errors=True)
        caplog.clear()
        with monkeypatch.context() as patch:
            Fault(patch, DiskStore, name, after, error)
            served = Served(cache_dir / root)
            assert served.answers(2, 3, 2), (root, error, after)
        assert served.cached.stats.traces <= 1
        assert len(warnings_of(caplog)) <= 1
        assert served.cached.stats.calls == 3


def test_where_the_fallback_faults_too_the_method_runs_and_nothing_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    served = Served(tmp_path / "file" / "cache")
    with monkeypatch.context() as patch:
        Fault(patch, MemoryStore, "load", 0, RuntimeError("no memory either"))
        assert served.answers(2, 3)
    assert served.answers(2, 3, 2)
    stats = served.cached.stats
    assert (stats.traces, stats.calls) == (1, 5)
    assert sum(stats.gears.values()) == 0
    assert stats.faults >= 1
    (warning,) = warnings_of(caplog)
    assert str(tmp_path / "file") in warning
    assert "no memory either" in warning
    served.cached.refresh()
    assert served.answers(2)
    assert served.cached.stats.traces == 2, "refresh tries again"


def test_what_the_cache_did_not_foresee_is_explained(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(cache_dir)
    with monkeypatch.context() as patch:
        Fault(patch, bindings, "resolve", 0, ValueError("odd"))
        assert served.answers(2)
    assert served.cached.explain() == "Net.run: the last call was left to the method: ValueError: odd"
    assert served.answers(2)
    assert "odd" not in served.cached.explain()


def test_strict_raises_what_faulted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fault(monkeypatch, DiskStore, "publish", 0, RuntimeError("odd"))
    with pytest.raises(GearcacheError, match="RuntimeError: odd"):
        Served(tmp_path / "cache", strict=True).answers(2)


def test_a_module_that_changes_keeps_the_reason_why_no_graph_can_be_made(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(cache_dir, on_miss="compile")
    assert served.answers(2)

    def lacks() -> None:
        raise MissingTorchNames("2.99.0", "2.13", "2.13", ("torch._gone",))

    monkeypatch.setattr("gearcache.serving.miss.compiles.check_torch", lacks)
    with torch.no_grad():
        for _ in range(2):
            served.cached(torch.ones(5, 4))
            served.net.linear.weight = torch.nn.Parameter(torch.ones(4, 4))
            served.cached(torch.ones(2, 4))  # by the graph, which is loaded again
    assert dict(served.cached.stats.eager_reasons) == {"torch": 2}
