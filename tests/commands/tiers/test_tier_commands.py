"""`push`, `pull`, `remote status`, `prune --remote`, and tiers in the other commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.remote.breaker import FAULTS, Breaker
from gearcache.cache.remote.engines import retrying
from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.protocol import Deadline
from gearcache.cache.remote.urls import masked
from gearcache.cli import main
from gearcache.commands.checks.cache_checks import check_tiers
from gearcache.commands.checks.host_checks import check_settings
from tests.cache.remote.real_engines import website
from tests.support.commands import DECODE, DECODE_OLD, PREFILL, listed, run, run_json, store
from tests.support.deploys import DEPLOY
from tests.support.stored_gears import store_gears

REMOTES = "GEARCACHE_REMOTES"
SECRET = "s3cret"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "PAUSES", (0.0, 0.0))
    monkeypatch.delenv(REMOTES, raising=False)


@pytest.fixture
def share(tmp_path: Path) -> str:
    (tmp_path / "share").mkdir()
    return f"folder:{tmp_path / 'share'}?unsigned=1"


@pytest.fixture
def other(tmp_path: Path) -> tuple[str, str]:
    """The option for the cache of another host."""
    return "--cache-dir", str(tmp_path / "other")


@pytest.fixture
def pushed(cache_dir: Path, share: str) -> Path:
    """Two entries of a method and one of another, here and in the tier."""
    for number, key in enumerate((DECODE, DECODE_OLD, PREFILL)):
        store_gears(cache_dir, key, {"1": b"one %d" % number, "2": b"two"})
    run("push", "--to", share)
    return cache_dir


def test_what_one_host_pushed_another_pulls(
    cache_dir: Path, share: str, other: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_gears(cache_dir, DECODE, {"1": b"one", "2": b"two"})
    (tier,) = run_json("push", "--to", share)["tiers"]
    assert (len(tier["sent"]), tier["blobs"], tier["failed"]) == (1, 2, {})
    monkeypatch.setenv(REMOTES, share)
    assert run("push").stdout.endswith("sent 0 entries; 1 was there\n")
    found = run_json("pull", *other)
    assert (found["brought"], found["blobs"], found["required"]) == (tier["sent"], 2, None)
    assert [entry["key"] for entry in listed(*other)] == [DECODE.digest]
    assert "sound" in run("verify", *other).stdout
    assert run("pull", *other).stdout.startswith("brought 0 entries (1 was there) into ")
    assert run("pull", "-q", *other).output == ""


def test_a_command_for_the_whole_cache_fails_where_an_entry_cannot_be_read(
    cache_dir: Path, share: str, tmp_path: Path
) -> None:
    store_gears(cache_dir, PREFILL, {"1": b"one"})
    path = store(cache_dir, DECODE, b"code")
    path.write_bytes(b"damaged")
    sent = run_json("push", "--to", share, code=1)
    packed = run_json("pack", "--file", str(tmp_path / "bundle"), code=1)
    assert (sent["tiers"][0]["sent"], packed["entries"]) == ([PREFILL.name], [PREFILL.name])
    reasons = [document["unreadable"] for document in (sent, packed, run_json("list"))]
    assert all(len(each) == 1 and str(path) in each[0] for each in reasons)
    assert str(path) in run("push", "--to", share, code=1).stderr
    assert run_json("push", "Model.prefill", "--to", share)["unreadable"] == []


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("Model.decode", [DECODE, DECODE_OLD]),
        ("*.pre*", [PREFILL]),
        (DECODE.digest[:8], [DECODE]),
        (f"Model.decode-{DECODE_OLD.digest[:6]}", [DECODE_OLD]),
    ],
)
def test_entries_are_chosen_by_name(
    name: str, keys: list[CacheKey], pushed: Path, share: str, other: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "share-2").mkdir()
    run("pull", name, "--from", share, *other)
    assert {entry["key"] for entry in listed(*other)} == {key.digest for key in keys}
    sent = run_json("push", name, "--to", share.replace("?", "-2?"))["tiers"][0]["sent"]
    assert {each.rpartition("-")[2] for each in sent} == {key.digest for key in keys}


def test_nothing_is_sent_to_what_is_read_only(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_gears(cache_dir, DECODE, {"1": b"one"})
    for url in ("https://host/x", f"folder:{tmp_path / 'x'}?read_only=1"):
        assert "is read only" in run("push", "--to", url, code=2).stderr
        assert "is read only" in run("prune", "--remote", url, code=2).stderr
        monkeypatch.setenv(REMOTES, url)
        assert "names only tiers that are read only" in run("push", code=2).stderr
    (tmp_path / "y").mkdir()
    monkeypatch.setenv(REMOTES, f"https://host/x folder:{tmp_path / 'y'}?unsigned=1")
    assert [tier["tier"] for tier in run_json("push")["tiers"]] == [f"folder:{tmp_path / 'y'}"]
    assert not (tmp_path / "x").exists()


def test_an_interrupted_pull_leaves_whole_entries_only(
    pushed: Path, share: str, other: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    get, seen = FolderRemote.get, []

    def interrupted(self: FolderRemote, name: str, limit: int, deadline: Deadline) -> bytes | None:
        if "/blobs/" in name:
            seen.append(name)
            if len(seen) == 4:
                raise KeyboardInterrupt
        return get(self, name, limit, deadline)

    monkeypatch.setattr(FolderRemote, "get", interrupted)
    assert "interrupted" in run("pull", "--from", share, *other, code=130).stderr
    monkeypatch.undo()
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(pushed))
    before = len(listed(*other))
    assert before < 3
    assert run_json("verify", *other)["entries"] == before
    assert len(run_json("pull", "--from", share, *other)["brought"]) == 3 - before


def test_a_folder_with_lists_is_a_website_to_pull_from(
    pushed: Path, tmp_path: Path, share: str, other: tuple[str, str]
) -> None:
    with website(str(tmp_path / "share")) as url:
        text = run("pull", "--from", f"{url}?unsigned=1", *other, code=1).stderr
        assert "has no `v7/entries/index.txt`, which `gearcache push --index` writes" in text
        assert run_json("push", "--to", share, "--index")["tiers"][0]["indexed"]
        assert len(run_json("pull", "*.decode", "--from", f"{url}?unsigned=1", *other)["brought"]) == 2


def test_a_pull_tells_whether_all_that_is_required_came(
    cache_dir: Path, tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deploy_of_tiers.py").write_text(DEPLOY)
    target = f"{tmp_path / 'deploy_of_tiers.py'}:build"
    run("prewarm", target)
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv(REMOTES, share)
    found = run_json("pull", "--require", target, code=1)["required"]
    assert (found["complete"], found["missing"]) == (False, {"Net.decode": ["x.size(0)=1", "x.size(0)=2"]})
    run("push", "--cache-dir", str(cache_dir))
    result = run("pull", "--require", target)
    assert f"all that `{target}` calls is here: 2 graphs" in result.stderr
    # What is needed is here, so a tier that fails does not matter.
    monkeypatch.setenv(REMOTES, "http://127.0.0.1:1/x")
    assert run_json("pull", "--require", target)["required"]["present"] == 2
    assert "is no function" not in run("pull", code=1).stderr


def test_status_shows_each_tier_and_ends_with_1_where_one_cannot_be_reached(pushed: Path, share: str) -> None:
    result = run("doctor", "--tiers", share)
    header, line = result.stdout.splitlines()
    assert header.split()[:4] == ["Tier", "State", "Access", "Get"]
    assert "reachable" in line
    assert "nobody (3)" in line
    strict = run("doctor", "--tiers", share.partition("?")[0]).stdout
    assert "refuses 3 manifests of 3 that were read: it is not signed" in strict
    result = run("doctor", "--tiers", share, f"redis://me:{SECRET}@127.0.0.1:1/0", code=1)
    assert "FAIL" in result.stdout
    assert SECRET not in result.output


def test_prune_of_a_tier_says_what_it_would_remove(pushed: Path, tmp_path: Path, share: str) -> None:
    arguments = ("prune", "--remote", share, "--older-than", "0s", "--grace", "0s")
    (dry,) = run_json(*arguments, "--dry-run")["tiers"]
    assert (len(dry["old"]), len(dry["blobs"])) == (3, 4)
    assert "would remove 3 old manifests and 4 blobs" in run(*arguments, "--dry-run").stdout
    assert "removed 3 old manifests and 4 blobs" in run(*arguments).stdout
    assert [path for path in (tmp_path / "share").rglob("*") if path.is_file()] == []
    assert len(listed()) == 3  # of this host
    assert "--remote takes --older-than" in run("prune", "--remote", share, "--max-size", "1GB", code=2).stderr
    assert run_json("prune", "--remote", "redis://127.0.0.1:1/0", code=1)["tiers"][0]["problem"]


def test_doctor_asks_each_tier_also_one_that_rests(cache_dir: Path, share: str) -> None:
    layout = Layout(cache_dir)
    layout.prepare()
    (check,) = check_tiers({}, layout)
    assert (check.ok, "is not set" in check.detail) == (None, True)
    (check,) = check_tiers({REMOTES: "ftp://x"}, layout)
    assert (check.ok, "ftp://x" in check.detail) == (False, True)
    good, bad = check_tiers({REMOTES: f"{share} redis://me:{SECRET}@127.0.0.1:1/0"}, layout)
    assert (good.ok, bad.ok) == (True, False)
    assert SECRET not in bad.detail
    breaker = Breaker(layout.locks_folder, share.partition("?")[0])
    for _ in range(FAULTS):
        breaker.fault()
    (check,) = check_tiers({REMOTES: share}, layout)
    assert (check.ok, "answers after" in check.detail) == (True, True)
    assert "it failed a moment ago, and nobody of this host was to ask it, or to send there, for" in check.detail
    (bad,) = check_tiers({REMOTES: "redis://127.0.0.1:1/0"}, layout)
    assert bad.ok is False


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f"s3://team/x?endpoint=http://u:{SECRET}@host:9000", "s3:…"),
        (f"redis://u:a {SECRET} b@host/0", "redis:… … …"),
        (f"oci://h/x:{SECRET}@y", "…"),
        (f"redis://me:{SECRET}@cache:6379/3 folder:/mnt/a@b", "redis://cache:6379/3 folder:/mnt/a@b"),
        (f"s3://team/x?read_only=1&secret_access_key={SECRET}", "s3://team/x"),
    ],
)
def test_no_setting_or_check_shows_a_password_in_any_form(
    value: str, shown: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTES, value)
    assert masked(value) == shown
    output = CliRunner().invoke(main, ["doctor", "--settings"]).output  # 1 where the setting is wrong
    assert SECRET not in output
    assert "".join(shown.split()) in "".join(output.split())
    checks, _ = check_settings(os.environ)
    assert SECRET not in "".join(check.detail for check in checks)
