"""The command line as a whole: start, help, exit codes, completion, other format versions."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cli import COMMANDS, GROUPS, main
from tests.support.commands import DECODE, run, run_process, store
from tests.support.fork_server import run_code

#: Commands that look into a cache, with arguments under which they do.
ON_A_CACHE = {
    "list": (),
    "show": ("Model.decode",),
    "explain": ("Model.decode",),
    "stats": (),
    "doctor": (),
    "verify": (),
    "clear": ("--all", "--dry-run"),
    "prune": ("--max-size", "1GB"),
    "report": (),
    "pack": ("--oci", "image"),
}


def test_help_names_every_command_with_an_example_that_exists_and_the_exit_codes() -> None:
    text = run("--help").stdout
    for name, command in COMMANDS.items():
        assert f"  {name} " in text
        assert command.text in text
        assert f"$ {command.example}" in text
        assert f"Example:\n    {command.example}\n" in run(name, "--help").stdout
        words = shlex.split(command.example.partition("|")[0])
        found = main.get_command(click.Context(main), name)
        assert found is not None
        assert words[:2] == ["gearcache", name]
        with found.make_context(name, words[2:], resilient_parsing=True):
            pass
    assert all(f"{title}:\n" in text for title in GROUPS)
    assert "130  interrupted by Ctrl-C" in text


def test_the_program_itself_imports_no_command_and_commands_no_torch() -> None:
    modules = [command.module for name, command in COMMANDS.items() if name not in ("doctor", "prewarm")]
    program = (
        "import importlib, sys, gearcache.cli\n"
        "assert {'rich', 'diskcache', 'msgpack', 'gearcache.commands'}.isdisjoint(sys.modules)\n"
        f"for name in {modules}:\n"
        "    importlib.import_module(f'gearcache.commands.{name}')\n"
        "    assert {'torch', 'gearcache.ge_cache', 'cryptography'}.isdisjoint(sys.modules), name\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_commands_work_on_a_cache_with_older_and_newer_formats_and_leave_them(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store(cache_dir, DECODE, b"ours")
    others = []
    for number in (FORMAT_VERSION - 1, FORMAT_VERSION + 1):
        manifest = cache_dir / f"v{number}" / "entries" / "Model.decode-0123" / "manifest.msgpack"
        manifest.parent.mkdir(parents=True)
        manifest.write_bytes(b"another format")
        others.append(manifest)
    for name, arguments in ON_A_CACHE.items():
        result = run(name, *arguments)
        if name in ("list", "show", "verify"):
            assert f"v{FORMAT_VERSION - 1}` holds entries of an older gearcache" in result.stderr
            assert f"v{FORMAT_VERSION + 1}` holds entries of a newer gearcache" in result.stderr
    run("clear", "--all")
    assert all(path.read_bytes() == b"another format" for path in others)


def test_python_m_runs_it_and_data_and_notes_are_apart(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    done = run_process("list")
    assert (done.returncode, done.stdout.splitlines()[0].split()[0]) == (0, "Method")
    assert done.stderr.startswith("note: 1 entry")
    assert "\x1b" not in done.stdout + done.stderr


def complete(words: str) -> list[str]:
    environ = {
        "_GEARCACHE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = CliRunner().invoke(main, [], prog_name="gearcache", env=environ)
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_and_entries_are_completed(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    assert complete("gearcache pre") == ["prewarm"]
    assert "_gearcache_completion" in run("--completion", "bash").stdout
    assert complete("gearcache show Mod") == ["Model.decode", f"Model.decode-{DECODE.digest[:12]}"]
    assert complete("gearcache clear --entry Model.decode-") == [f"Model.decode-{DECODE.digest[:12]}"]


def test_a_file_in_place_of_the_cache_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(file))
    for command in (("list",), ("stats",), ("verify",), ("clear", "--all", "--yes"), ("prune", "--max-size", "1GB")):
        with subtests.test(command[0]):
            assert f"`{file}` is a file, not the folder of a cache" in run(*command, code=3).stderr


#: A command of a user who may not read the folder of the cache; for root, of another user.
_AS_A_STRANGER = """
import os, sys
import gearcache.commands.entries.list_entries
from gearcache.cli import main
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
main()
"""


def test_an_unreadable_cache_has_one_exit_code_however_it_is_named(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not in tmp_path, which only its owner may enter
        Path(folder).chmod(0o755)
        cache = Path(folder, "cache")
        cache.mkdir(mode=0)
        for arguments, variables in ((("--cache-dir", str(cache)), {}), ((), {"TORCHAIR_CACHE_HOME": str(cache)})):
            environ = {**os.environ, **variables}
            done = run_code(_AS_A_STRANGER, "list", *arguments, environ=environ, cwd=tmp_path)
            assert (done.returncode, "Permission denied" in done.stderr) == (3, True), done.stderr
