"""The private key of a host that compiles: its file, what it signs, and the local cache, which asks for no key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.signatures.key_pair import SigningKey, new_key_file
from gearcache.cache.store import DiskStore
from gearcache.errors import CacheError, UnsafePath
from tests.support.relaunch import run_python
from tests.support.signing import Pair, hide_package, manifest

KEY = CacheKey("Model.decode", (("a", 1),))

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


@pytest.mark.parametrize("place", ["key", "nothing"])
def test_a_new_key_is_not_written_through_a_link(tmp_path: Path, place: str) -> None:
    (tmp_path / "key").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / place)
    with pytest.raises(FileExistsError):
        new_key_file(tmp_path / "link")
    assert (tmp_path / "key").read_bytes() == b"precious"
    assert not (tmp_path / "nothing").exists()


def test_a_new_key_is_not_written_where_others_could_exchange_it(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UnsafePath, match="lets others write"):
        new_key_file(tmp_path / "open" / "key.pem")
    assert list((tmp_path / "open").iterdir()) == []


def test_a_key_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        new_key_file(tmp_path / "key.pem")
    assert list(tmp_path.iterdir()) == []


def _rsa() -> bytes:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _with_password() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))


#: What a file holds that is no key, and what is said of it.
NO_KEYS: dict[str, tuple[Callable[[], bytes], str]] = {
    "rsa": (_rsa, "of another kind than Ed25519"),
    "password": (_with_password, "no private key in PEM without a password"),
    "bytes": (lambda: bytes(range(32)), "no private key in PEM"),
}


@pytest.mark.parametrize("content", NO_KEYS)
def test_a_file_that_holds_no_such_key_is_refused(content: str, tmp_path: Path) -> None:
    make, words = NO_KEYS[content]
    path = tmp_path / "key.pem"
    path.write_bytes(make())
    path.chmod(0o600)
    with pytest.raises(UnsafePath, match=words) as caught:
        SigningKey(path).trailer(manifest())
    assert "`gearcache keys new`" in str(caught.value)


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


def test_a_local_relaunch_imports_no_cryptography_and_asks_for_no_key(cache_dir: Path, tmp_path: Path) -> None:
    build = Pair(tmp_path)
    environ = {
        "TORCHAIR_CACHE_HOME": str(cache_dir),
        "GEARCACHE_SIGNING_KEY_FILE": str(build.path),
        "GEARCACHE_TRUSTED_KEYS": build.trusted.text,
    }
    hits, compiles, brought = run_python(SERVE, environ=environ, compiles=True)
    assert (hits, compiles) == (0, 1)
    assert "cryptography" in brought
    (path,) = cache_dir.glob("v*/entries/*/*/manifest.msgpack")
    assert build.checks.check(path.read_bytes(), "here") == "build"
    # Not even the list is read: it would be refused.
    assert run_python(SERVE, environ=environ | {"GEARCACHE_TRUSTED_KEYS": "wrong"}) == [1, 0, []]
