"""Tiers of signed entries: what a trusted key has signed is fetched, whatever else lies there is refused."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache.admin.verify import verify
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import signed_parts
from gearcache.cache.remote.trust import Trust
from tests.serving.fleet.test_tiers import Host, objects
from tests.serving.fleet.test_tiers import _fresh as _fresh
from tests.support.signing import Pair, hmac_key

SIGNING, TRUSTED, SECRET = "GEARCACHE_SIGNING_KEY_FILE", "GEARCACHE_TRUSTED_KEYS", "GEARCACHE_HMAC_KEY_FILE"
Sets = Callable[..., None]


@pytest.fixture
def build(tmp_path: Path) -> Pair:
    return Pair(tmp_path, "build-2026")


@pytest.fixture
def share(tmp_path: Path) -> str:
    (tmp_path / "share").mkdir()
    return f"folder:{tmp_path / 'share'}"


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> Sets:
    """What makes this process another host: it has these variables of keys, and no others."""

    def change(**given: str) -> None:
        for name, value in {SIGNING: "", TRUSTED: "", SECRET: "", **given}.items():
            monkeypatch.setenv(name, value)

    return change


def test_what_a_build_host_signed_is_fetched_by_hosts_that_trust_its_key(
    tmp_path: Path, share: str, build: Pair, sets: Sets
) -> None:
    sets(**{SIGNING: str(build.path)})
    assert Host(tmp_path / "a", share).call().compiles == 2
    (manifest,) = [path for path in objects(share, "entries") if path.suffix == ".msgpack"]
    assert build.checks.check(manifest.read_bytes(), "m") == "build-2026"
    sets(**{TRUSTED: build.trusted.text})
    assert Host(tmp_path / "b", f"{share}?read_only=1").call().compiles == 0
    shutil.rmtree(tmp_path / "share")
    assert Host(tmp_path / "b", "").call().compiles == 0


def test_an_entry_without_its_signature_is_refused_with_the_reason_and_compiled_here(
    tmp_path: Path, share: str, build: Pair, sets: Sets, caplog: pytest.LogCaptureFixture
) -> None:
    """`tests/cache/remote/test_signed_manifests.py` has more of what an attacker may do."""
    sets(**{SIGNING: str(build.path)})
    Host(tmp_path / "a", share).call()
    (manifest,) = objects(share, "entries")
    data = signed_parts(manifest.read_bytes()).manifest
    manifest.unlink()
    manifest.with_name(f"{sha256(data).hexdigest()}.msgpack").write_bytes(data)
    sets(**{TRUSTED: build.trusted.text})
    with caplog.at_level(logging.WARNING):
        host = Host(tmp_path / "b", f"{share}?read_only=1").call()
    assert host.compiles == 2
    (warning,) = [record.getMessage() for record in caplog.records if "is not trusted" in record.getMessage()]
    assert "it is not signed" in warning
    assert verify(Layout(tmp_path / "b"), trust=Trust([build.trusted])).is_sound
    assert Host(tmp_path / "b", "").call().compiles == 0


def test_a_host_that_signs_takes_nothing_unsigned_which_its_signature_would_vouch_for(
    tmp_path: Path, share: str, build: Pair, sets: Sets
) -> None:
    (tmp_path / "signed").mkdir()
    open_tier, signed_tier = f"{share}?unsigned=1", f"folder:{tmp_path / 'signed'}"
    sets()
    Host(tmp_path / "a", open_tier).call()
    for variables in ({SIGNING: str(build.path)}, {SECRET: str(hmac_key(tmp_path))}):
        sets(**variables)
        found = Host(tmp_path / f"b{len(variables)}{next(iter(variables))}", f"{open_tier} {signed_tier}").call()
        assert found.compiles == 2
        assert "takes nothing that nobody signed" in found.cached.explain()
