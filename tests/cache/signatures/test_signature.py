"""Signed entries: what is unsigned or signed by others is a miss."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.signatures.trailer import HMAC_SIZE
from gearcache.cache.store import DiskStore, Hit, Miss, MissReason
from gearcache.errors import UnsafePath
from tests.support.scenarios import strict_config

KEY = CacheKey("Model.decode", (("a", 1),))
OTHER = CacheKey("Model.decode", (("a", 2),))


def key_file(folder: Path, name: str = "key", content: bytes = b"0123456789abcdef0123456789abcdef\n") -> Path:
    path = folder / name
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def store(folder: Path, key: Path | None) -> DiskStore:
    return DiskStore(Layout(folder / "cache"), signer=Signer(key) if key is not None else None)


def reason(found: Hit | Miss) -> MissReason | None:
    return found.reason if isinstance(found, Miss) else None


@pytest.mark.parametrize("how", ["unsigned", "another key", "moved", "changed", "cut off"])
def test_what_is_not_signed_with_the_key_is_a_miss_and_is_replaced(tmp_path: Path, how: str) -> None:
    mine = key_file(tmp_path)
    signed = store(tmp_path, mine)
    path = signed.layout.manifest(KEY)
    if how == "unsigned":
        store(tmp_path, None).publish(KEY, {"a": 1}, {}, {})
    elif how == "another key":
        store(tmp_path, key_file(tmp_path, "other", b"another key, of enough bytes")).publish(KEY, {"a": 1}, {}, {})
    else:
        signed.publish(KEY, {"a": 1}, {}, {})
        data = path.read_bytes()
        unsigned = store(tmp_path, None)
        if how == "moved":  # the signature of one entry behind the manifest of another
            signed.publish(OTHER, {"a": 2}, {}, {})
            other = signed.layout.manifest(OTHER).read_bytes()
            path.write_bytes(data[:-HMAC_SIZE] + other[-HMAC_SIZE:])
        elif how == "changed":
            unsigned.publish(KEY, {"a": 666}, {}, {})
            path.write_bytes(path.read_bytes() + data[-HMAC_SIZE:])
        else:
            path.write_bytes(data[:-HMAC_SIZE])
    found = signed.lookup(KEY)
    assert reason(found) is MissReason.UNSIGNED
    assert str(path) in found.detail  # type: ignore[union-attr]
    assert "GEARCACHE_HMAC_KEY_FILE" in found.detail  # type: ignore[union-attr]
    assert path.exists(), "refused, not deleted: it may be right for others"
    signed.publish(KEY, {"a": 3}, {}, {})
    assert isinstance(signed.lookup(KEY), Hit)


@pytest.mark.parametrize("fault", ["missing", "short", "huge", "writable", "readable", "foreign", "above"])
def test_without_its_key_a_signed_cache_is_not_used(tmp_path: Path, fault: str) -> None:
    key = key_file(tmp_path)
    store(tmp_path, key).publish(KEY, {}, {}, {})
    if fault == "missing":
        key.unlink()
    elif fault == "foreign":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(key, 65534, 65534)
    elif fault in ("writable", "readable"):
        key.chmod({"writable": 0o620, "readable": 0o604}[fault])
    elif fault == "above":
        (tmp_path / "open").mkdir()
        key = key.rename(tmp_path / "open" / "key")
        key.parent.chmod(0o777)
    else:
        key.write_bytes({"short": b"x" * 15 + b"\n", "huge": b"x" * 5000}[fault])
    with pytest.raises(UnsafePath) as caught:
        store(tmp_path, key).lookup(KEY)
    assert str(key) in str(caught.value)
    with pytest.raises(UnsafePath):
        store(tmp_path, key).publish(KEY, {}, {}, {})


def test_the_environment_names_the_key_of_a_cached_method(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve() -> gearcache.Stats:
        torch.manual_seed(0)
        module = torch.nn.Linear(4, 4)
        cached = gearcache.cache_compile(module.forward, config=strict_config(), cache_dir=cache_dir)
        with torch.no_grad():
            x = torch.randn(2, 4)
            assert torch.equal(cached(x), module(x))
        stats: gearcache.Stats = cached.stats
        return stats

    assert serve().compiles == 1
    monkeypatch.setenv("GEARCACHE_HMAC_KEY_FILE", str(key_file(tmp_path)))
    signed = serve()
    assert (signed.compiles, signed.miss_reasons[0].startswith("unsigned: ")) == (1, True)
    assert (serve().hits, serve().compiles) == (1, 0)
    monkeypatch.setenv("GEARCACHE_HMAC_KEY_FILE", str(key_file(tmp_path, "other", b"another key, of enough bytes")))
    assert serve().compiles == 1
    monkeypatch.delenv("GEARCACHE_HMAC_KEY_FILE")
    assert serve().compiles == 0
