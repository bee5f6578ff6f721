"""Damaged files: found before anything is run, quarantined (only they), counted, compiled again, never twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.cache.admin.verify import verify
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import MAGIC
from gearcache.ge_cache.backend import StoredArtifact
from gearcache.ge_cache.eager import EagerBackend
from tests.support.scenarios import strict_config

GEARS = {"input": {0: [2, 3]}}


class Numbered(torch.nn.Module):
    """Rows plus their numbers: each gear has a graph of its own, and so a blob."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.linear(input) + torch.arange(input.shape[0])[:, None]


class Served:
    """One launch: a fresh model with a fresh cached method, called at each gear and compared with eager."""

    def __init__(self, root: Path, width: int = 4) -> None:
        torch.manual_seed(0)
        module = Numbered(width)
        cached = gearcache.cache_compile(module.forward, config=strict_config(), cache_dir=root, gears=GEARS)
        with torch.no_grad():
            for size in (2, 3):
                x = torch.randn(size, width)
                assert torch.equal(cached(x), module(x))
        self.stats = cached.stats
        self.manifest = Path(str(cached.entry_path))


def flip(path: Path, at: float, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, at: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(at * (len(data) - 1))])


def swap(first: Path, second: Path) -> None:
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


def blobs(root: Path) -> list[Path]:
    return sorted(Layout(root).blobs())


def neighbour(root: Path) -> Path:
    return Served(root, width=5).manifest


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "first bit of a blob": lambda root, _: flip(blobs(root)[0], 0.0),
    "emptied blob": lambda root, _: cut(blobs(root)[0], 0.0),
    "missing blob": lambda root, _: blobs(root)[0].unlink(),
    "swapped blobs": lambda root, _: swap(*blobs(root)),
    "flipped manifest": lambda _, manifest: flip(manifest, 0.5, 3),
    "manifest of another key": lambda root, manifest: swap(manifest, neighbour(root)),
    "manifest of another version": lambda _, manifest: set_version(manifest),
}


def set_version(manifest: Path) -> None:
    data = bytearray(manifest.read_bytes())
    data[len(MAGIC) + 1] = FORMAT_VERSION + 1
    manifest.write_bytes(data)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with one entry of two blobs."""
    root = tmp_path_factory.mktemp("filled")
    Served(root)
    return root


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_a_miss_that_is_mended_once(
    filled: Path, cache_dir: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(filled, cache_dir)
    sound = {path.name: path.read_bytes() for path in blobs(cache_dir)}
    assert len(sound) == 2
    (manifest,) = Layout(cache_dir).entries()
    DAMAGES[damage](cache_dir, manifest)
    loaded: list[bytes] = []
    load = EagerBackend.load

    def watched(self: EagerBackend, artifact: StoredArtifact, *rest: object) -> object:
        def read(name: str) -> bytes:
            data = artifact.read(name)
            loaded.append(data)
            return data

        return load(self, StoredArtifact(artifact.header, artifact.digests, read, artifact.file), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(EagerBackend, "load", watched)
    mended = Served(cache_dir)
    assert mended.stats.misses >= 1
    assert mended.stats.compiles == 2
    assert mended.stats.miss_reasons
    assert set(loaded) <= set(sound.values()), "bytes were run that nobody had verified"
    again = Served(cache_dir)
    assert (again.stats.hits, again.stats.misses, again.stats.traces) == (1, 0, 0)
    if damage == "manifest of another key":
        assert Served(cache_dir, width=5).stats.misses == 1
    assert verify(Layout(cache_dir)).is_sound
    quarantined = [path for path in Layout(cache_dir).quarantine_folder.iterdir() if path.suffix != ".reason"]
    wanted = {"swapped blobs": 2, "manifest of another key": 2}
    if "missing" in damage or damage == "manifest of another version":
        assert quarantined == []
    else:
        assert 1 <= len(quarantined) <= wanted.get(damage, 1)


def test_what_is_stored_is_not_replaced_while_it_cannot_be_read(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cached(size: int, *, may_read: bool = True) -> Any:
        method = gearcache.cache_compile(
            torch.nn.Linear(4, 4).forward, config=gearcache.CompilerConfig(backend="eager"), dynamic=False
        )
        with monkeypatch.context() as patch, torch.no_grad():
            if not may_read:
                patch.setattr("gearcache.cache.store.read_manifest", _too_many_files)
            method(torch.ones(size, 4))
        return method

    cached(2)
    assert cached(3, may_read=False).stats.traces == 1
    assert cached(2).stats.traces == 0


def _too_many_files(*arguments: Any) -> None:
    raise OSError(24, "Too many open files")
