"""The command line: what stands on stdout, on stderr, and the exit code."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gearcache.cache import CacheKey, DiskStore, Layout
from gearcache.cli import main

DECODE = CacheKey("Model.decode", (("gears", (1, 2)),))
PREFILL = CacheKey("Model.prefill", (("gears", (8,)),))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def store(root: Path, key: CacheKey, blob: bytes, scope: str = "") -> None:
    disk = DiskStore(Layout(root, scope))
    disk.publish(key, {}, {disk.put_blob(blob): len(blob)}, {})


def test_the_console_script_is_this_command() -> None:
    (script,) = entry_points(group="console_scripts", name="gearcache")
    assert script.load() is main


def test_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"gearcache {version('gearcache')}\n"


def test_list_shows_every_entry_and_rank_once(cache_dir: Path) -> None:
    store(cache_dir, PREFILL, b"p" * 3000)
    store(cache_dir, DECODE, b"d" * 10, scope="rank1")
    result = run("list")
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header == ["Method", "Key", "Ranks", "Blobs", "Size", "Created"]
    assert [row[:6] for row in rows] == [
        ["Model.decode", DECODE.digest[:12], "rank1", "1", "10", "bytes"],
        ["Model.prefill", PREFILL.digest[:12], "-", "1", "3.0", "kB"],
    ]
    assert (result.stderr, result.exit_code) == ("", 0)


def test_list_takes_the_given_folder_before_the_environment(cache_dir: Path, tmp_path: Path) -> None:
    store(cache_dir, DECODE, b"default")
    store(tmp_path / "other", PREFILL, b"given")
    result = run("list", "--cache-dir", str(tmp_path / "other"))
    assert "Model.prefill" in result.stdout
    assert "Model.decode" not in result.stdout


def test_list_of_no_cache_creates_nothing(cache_dir: Path) -> None:
    result = run("list")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert result.stderr == f"no entries in `{cache_dir}`\n"
    assert not cache_dir.exists()


def test_list_names_a_broken_manifest_and_leaves_it(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"good")
    store(cache_dir, PREFILL, b"bad")
    broken = Layout(cache_dir).manifest(PREFILL)
    broken.write_bytes(b"not a manifest")
    result = run("list")
    assert result.stderr.startswith(f"warning: `{broken}` is corrupt")
    assert "Model.decode" in result.stdout
    assert "Model.prefill" not in result.stdout
    assert broken.read_bytes() == b"not a manifest"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = run("lst")
    assert result.exit_code == 2
    assert "No such command" in result.stderr


@pytest.mark.parametrize("module", ["torch", "gearcache.guards", "gearcache.ge_cache"])
def test_the_command_line_needs_no_torch(module: str) -> None:
    program = f"import gearcache.cli, sys; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
