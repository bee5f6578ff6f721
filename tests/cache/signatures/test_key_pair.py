"""The private key of a host that compiles: its file, what it signs, and the local cache, which asks for no key."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.signatures.key_pair import SigningKey
from gearcache.cache.store import DiskStore
from gearcache.errors import CacheError, UnsafePath
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config
from tests.support.signing import Pair, hide_package, manifest

KEY = CacheKey("Model.decode", (("a", 1),))

#: A relaunch of `torch.nn.Linear(4, 4).forward`; tells its hits, its compiles, and what it imported of signatures.
SERVE = """
import json, sys, torch, gearcache
torch.manual_seed(0)
module = torch.nn.Linear(4, 4)
cached = gearcache.cache_compile(module.forward, config=gearcache.CompilerConfig(backend="eager", strict=True))
with torch.no_grad():
    x = torch.randn(2, 4)
    assert torch.equal(cached(x), module(x))
brought = [name for name in sys.modules if name.startswith(("cryptography", "gearcache.cache.remote", "hmac"))]
print(json.dumps([cached.stats.hits, cached.stats.compiles, brought]))
"""


@pytest.mark.parametrize("fault", ["missing", "readable", "writable", "above"])
def test_a_key_that_others_may_read_or_exchange_is_refused(fault: str, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    path = Pair(tmp_path / "place").path
    if fault == "missing":
        path.unlink()
    elif fault == "above":
        path.parent.chmod(0o777)
    else:
        path.chmod({"readable": 0o644, "writable": 0o620}[fault])
    with pytest.raises(UnsafePath) as caught:
        SigningKey(path).trailer(manifest())
    assert str(path) in str(caught.value)


def test_nothing_is_published_unsigned_where_the_key_or_the_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path / "cache")
    with pytest.raises(UnsafePath, match="cannot be read"):
        DiskStore(layout, signing_key=SigningKey(tmp_path / "gone.pem")).publish(KEY, {}, {}, {})
    build = Pair(tmp_path)
    hide_package(monkeypatch)
    with pytest.raises(CacheError, match=r"pip install 'gearcache\[keys\]'"):
        DiskStore(layout, signing_key=build.private).publish(KEY, {}, {}, {})
    assert not layout.manifest(KEY).exists()


def test_a_local_relaunch_imports_no_cryptography_and_asks_for_no_key(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = Pair(tmp_path)
    monkeypatch.setenv("GEARCACHE_SIGNING_KEY_FILE", str(build.path))
    with torch.no_grad():
        gearcache.cache_compile(torch.nn.Linear(4, 4).forward, config=strict_config())(torch.randn(2, 4))
    (path,) = cache_dir.glob("v*/entries/*/*/manifest.msgpack")
    assert build.checks.check(path.read_bytes(), "here") == "build"
    # Not even the list is read: it would be refused.
    environ = {"TORCHAIR_CACHE_HOME": str(cache_dir), "GEARCACHE_TRUSTED_KEYS": "wrong"}
    environ["GEARCACHE_SIGNING_KEY_FILE"] = str(build.path)
    assert run_python(SERVE, environ=environ) == [1, 0, []]
