"""`gearcache keys`, and what other commands say of signatures by key pair: show, verify, unbundle, doctor."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from gearcache.cache.manifest import signed_parts
from gearcache.cache.remote.trust import Trust
from gearcache.cache.result import Hit
from gearcache.cache.signatures.key_pair import SigningKey
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.signatures.trusted_keys import trusted_keys
from gearcache.cache.store import DiskStore
from gearcache.commands.checks.cache_checks import check_keys
from gearcache.errors import UnsafePath
from tests.commands.entries.test_verify import GEARS, Net, cached, call_all, damage
from tests.support.commands import DECODE, PRODUCER, listed, run, run_json, store
from tests.support.signing import Pair, hmac_key
from tests.support.stored_gears import store_gears

SIGNING, TRUSTED, SECRET = "GEARCACHE_SIGNING_KEY_FILE", "GEARCACHE_TRUSTED_KEYS", "GEARCACHE_HMAC_KEY_FILE"


@pytest.fixture
def build(tmp_path: Path) -> Pair:
    return Pair(tmp_path, "build-2026")


def publish(root: Path, key: SigningKey, hmac: Signer | None = None) -> Path:
    """Store a signed entry; returns its manifest."""
    disk = DiskStore(Layout(root), signer=hmac, signing_key=key)
    with disk.writing():
        disk.publish(DECODE, {"parts": [], "variants": []}, {disk.put_blob(b"code"): 4}, PRODUCER)
    return Layout(root).manifest(DECODE)


def test_a_new_key_signs_on_one_host_and_its_line_lets_another_one_take_the_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End to end, with a bundle as the way from one to the other."""
    private = tmp_path / "build-2026.pem"
    made = run("keys", "new", str(private))
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    (line,) = made.stdout.splitlines()
    assert line.startswith("build-2026:")
    assert f"set `{SIGNING}`" in made.stderr
    assert private.read_text().splitlines()[1] not in made.output
    (tmp_path / "trusted").write_text(made.stdout)

    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path / "one"))
    monkeypatch.setenv(SIGNING, str(private))
    publish(tmp_path / "one", SigningKey(private))
    run("pack", "--file", str(tmp_path / "bundle.tar"))

    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.delenv(SIGNING)
    monkeypatch.setenv(TRUSTED, str(tmp_path / "trusted"))
    (tmp_path / "bundle.tar").chmod(0o666)  # anybody's
    run("pull", "--file", str(tmp_path / "bundle.tar"))
    assert "Signed    by `build-2026` (" in run("show", "Model.decode").stdout
    run("verify")


def test_a_key_is_never_overwritten_and_has_a_name_that_can_be_listed(tmp_path: Path) -> None:
    path = tmp_path / "my key"
    assert "cannot be called `my key`" in run("keys", "new", str(path), code=2).stderr
    assert "cannot be called `hmac`" in run("keys", "new", str(path), "--name", "hmac", code=2).stderr
    assert not path.exists()
    found = run_json("keys", "new", str(path), "--name", "build-2027")
    (key,) = trusted_keys({TRUSTED: found["keys"][0]["line"]})
    assert (key.name, key.fingerprint, found["file"]) == ("build-2027", found["keys"][0]["fingerprint"], str(path))
    before = path.read_bytes()
    assert "there is a file" in run("keys", "new", str(path), "--name", "build-2027", code=2).stderr
    assert path.read_bytes() == before
    assert "No such file" in run("keys", "new", str(tmp_path / "none" / "key"), code=3).stderr
    assert run("keys", "new", str(tmp_path / "quiet"), "-q").stderr == ""


def test_the_list_tells_names_times_and_the_key_of_this_host(
    build: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Pair(tmp_path, "build-2025").trusted
    monkeypatch.setenv(TRUSTED, f"{other.text};until=2026-11-01 {build.trusted.text};from=2026-11-01")
    monkeypatch.setenv(SIGNING, str(build.path))
    header, first, second = (line.split() for line in run("keys", "list").stdout.splitlines())
    assert header == ["Name", "Fingerprint", "From", "Until", "Signs", "here"]
    assert first == ["build-2025", other.fingerprint, "-", "2026-11-01", "-"]
    assert second == ["build-2026", build.trusted.fingerprint, "2026-11-01", "-", "yes"]
    found = run_json("keys", "list")
    assert [(key["name"], key["signs_here"]) for key in found["keys"]] == [("build-2025", False), ("build-2026", True)]
    assert found["keys"][0]["until"] == found["keys"][1]["from"] == 1_793_491_200
    assert found["signing_key"]["name"] == "build-2026"


def test_a_wrong_list_of_keys_is_one_line_and_a_usage_error(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(cache_dir, DECODE, b"d")
    monkeypatch.setenv(TRUSTED, "build:AAAA")
    (line,) = run("verify", code=2).stderr.splitlines()
    assert line.startswith(f"error: environment variable `{TRUSTED}` holds `build:AAAA`, which is no public key")


def test_show_says_who_signed(build: Pair, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def signed() -> str:
        (line,) = [line for line in run("show", "Model.decode").stdout.splitlines() if line.startswith("Signed ")]
        return line.removeprefix("Signed").strip()

    store(cache_dir, DECODE, b"d")
    assert signed() == "by nobody"
    assert run_json("show", "Model.decode")["signatures"] == []
    publish(cache_dir, build.private, Signer(hmac_key(tmp_path)))
    shown = build.trusted.fingerprint
    assert f"it has an HMAC, and `{SECRET}` is not set; it is signed by the key {shown}, and `{TRUSTED}`" in signed()
    monkeypatch.setenv(SECRET, str(hmac_key(tmp_path)))
    monkeypatch.setenv(TRUSTED, f"{build.trusted.text};until=2027-01-01")
    assert signed() == f"with the HMAC key of this host; by `build-2026` ({shown})"
    monkeypatch.setenv(TRUSTED, f"{build.trusted.text};until=2020-01-01")
    assert f"`build-2026` ({shown}) is trusted for entries until 2020-01-01 (UTC), not of 20" in signed()
    assert run_json("show", "Model.decode")["signatures"][1]["state"] == "wrong"


def test_verify_finds_entries_of_a_key_that_is_no_longer_trusted(
    build: Pair, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that has fetched them trusts its own folder, and its HMAC is its own: only `verify` finds them."""
    secret = hmac_key(tmp_path)
    publish(cache_dir, build.private, Signer(secret))
    monkeypatch.setenv(SECRET, str(secret))
    monkeypatch.setenv(TRUSTED, build.trusted.text)
    assert run_json("verify")["faults"] == []
    for trusted, reason in (
        (f"{build.trusted.text};until=2020-01-01", "is trusted for entries until"),
        (Pair(tmp_path, "build-2027").trusted.text, "does not list it"),
    ):
        monkeypatch.setenv(TRUSTED, trusted)
        (fault,) = run_json("verify", code=1)["faults"]
        assert reason in fault["reason"]


def test_a_repair_signs_the_rest_with_the_keys_of_this_host_or_leaves_it(
    build: Pair, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = hmac_key(tmp_path)
    monkeypatch.setenv(SIGNING, str(build.path))
    monkeypatch.setenv(SECRET, str(secret))
    net = Net()
    call_all(net, cached(net))
    damage(cache_dir, "x.size(0)=2")
    (path,) = cache_dir.glob("v*/entries/*/*/manifest.msgpack")
    before = path.read_bytes()
    monkeypatch.delenv(SIGNING)
    assert f"it is signed; set `{SIGNING}` to sign the rest" in run("verify", "--repair", code=1).stdout
    monkeypatch.delenv(SECRET)
    assert f"set `{SIGNING}` and `{SECRET}` to sign" in run("verify", "--repair", code=1).stdout
    assert path.read_bytes() == before
    monkeypatch.setenv(SIGNING, str(build.path))
    monkeypatch.setenv(SECRET, str(secret))
    assert "kept the other 3 gears" in run("verify", "--repair").stdout
    assert len(listed()[0]["gears"]) == len(GEARS) - 1
    assert Trust(hmac=Signer(secret)).check(path.read_bytes(), "m") == "hmac"
    assert build.checks.check(path.read_bytes(), "m") == "build-2026"


def test_a_pull_keeps_the_signature_of_who_compiled_it(
    build: Pair, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, share = Pair(tmp_path, "host"), f"folder:{tmp_path / 'share'}"
    (tmp_path / "share").mkdir()
    store_gears(cache_dir, DECODE, {"1": b"one"})
    path = Layout(cache_dir).manifest(DECODE)
    sent = build.signs.signed(path.read_bytes())
    path.write_bytes(sent)
    run("push", "--to", share)
    monkeypatch.setenv(TRUSTED, build.trusted.text)
    monkeypatch.setenv(SIGNING, str(other.path))
    run("pull", "--from", share, "--cache-dir", str(tmp_path / "other"))
    assert Layout(tmp_path / "other").manifest(DECODE).read_bytes() == sent
    monkeypatch.setenv(SECRET, str(hmac_key(tmp_path)))
    run("pull", "--from", share, "--cache-dir", str(tmp_path / "third"))
    data = Layout(tmp_path / "third").manifest(DECODE).read_bytes()
    assert signed_parts(data).pair == signed_parts(sent).pair
    assert Trust(hmac=Signer(hmac_key(tmp_path))).check(data, "m") == "hmac"


def test_a_bundle_is_taken_from_a_trusted_key_alone(
    build: Pair, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How else a signature may not fit is in `test_signed_manifests`."""
    path, bundle = publish(cache_dir, build.private), tmp_path / "bundle.tar"
    other = signed_parts(publish(tmp_path / "aside", build.private).read_bytes())
    path.write_bytes(signed_parts(path.read_bytes()).manifest + other.pair)
    run("pack", "--file", str(bundle))
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path / "target"))
    monkeypatch.setenv(TRUSTED, build.trusted.text)
    assert "does not fit its bytes" in run("pull", "--file", str(bundle), code=3).stderr
    assert list(Layout(tmp_path / "target").entries()) == []


def test_a_host_with_an_hmac_key_signs_what_it_takes_from_a_bundle(
    build: Pair, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lookups ask for its own HMAC, which the host that compiled cannot give."""
    publish(cache_dir, build.private)
    run("pack", "--file", str(tmp_path / "bundle.tar"))
    shutil.rmtree(cache_dir)
    monkeypatch.setenv(SECRET, str(hmac_key(tmp_path)))
    assert "it is signed by the key" in run("pull", "--file", str(tmp_path / "bundle.tar"), code=3).stderr
    monkeypatch.setenv(TRUSTED, build.trusted.text)
    run("pull", "--file", str(tmp_path / "bundle.tar"))
    assert isinstance(DiskStore(Layout(cache_dir), signer=Signer(hmac_key(tmp_path))).lookup(DECODE), Hit)
    assert build.checks.check(Layout(cache_dir).manifest(DECODE).read_bytes(), "m") == "build-2026"


def test_doctor_tells_what_is_trusted_and_what_cannot_be_used(build: Pair, tmp_path: Path) -> None:
    line = build.trusted.text
    assert check_keys({}).ok is None
    trusts = check_keys({TRUSTED: line})
    assert (trusts.ok, trusts.detail) == (True, "trusts `build-2026`; signs nothing")
    signs = check_keys({TRUSTED: line, SIGNING: str(build.path)})
    assert (signs.ok, signs.detail) == (True, "trusts `build-2026`; signs as `build-2026`")
    assert "which is not listed" in check_keys({SIGNING: str(build.path)}).detail
    late = check_keys({TRUSTED: f"{line};until=2020-01-01", SIGNING: str(build.path)})
    assert late.ok is False
    assert "what it compiles now is refused" in late.detail
    assert check_keys({TRUSTED: "x:y"}).ok is False
    gone = check_keys({SIGNING: str(tmp_path / "gone")})
    assert (gone.ok, "gearcache keys new" in gone.remedy) == (False, True)
    assert "keys" in {check["name"] for check in run_json("doctor")["checks"]}


def test_a_file_that_is_no_key_is_not_to_be_hidden_from_others(tmp_path: Path, build: Pair) -> None:
    other = tmp_path / "users"
    other.write_text("root:x:0:0:root:/root:/bin/bash\n" * 10)
    other.chmod(0o644)
    found = check_keys({SIGNING: str(other)})
    assert (found.ok, "it holds no private key" in found.detail, "chmod" in found.remedy) == (False, True, False)
    build.path.chmod(0o644)
    assert f"`chmod go-r {build.path}`" in check_keys({SIGNING: str(build.path)}).remedy
    with pytest.raises(UnsafePath, match="if it holds the key and nothing else, run `chmod go-r "):
        Signer(other).signature(b"")
