"""`-q`, `-v`, JSON documents and missing caches: the same for every command."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator

from gearcache.cli import COMMANDS, main
from tests.support.commands import DECODE, SCHEMA, check_document, run, run_json, store

#: Commands that only read a cache, with arguments under which they do.
READING: dict[str, tuple[str, ...]] = {
    "list": (),
    "show": ("Model.decode",),
    "explain": ("Model.decode",),
    "stats": (),
    "verify": (),
    "clear": ("--all",),
    "prune": ("--max-size", "1GB"),
    "report": (),
    "pack": ("--oci", "image"),
}
#: Those that print nothing where all is well and they were asked to be quiet: they do something, or look for faults.
SILENT = {"verify", "clear", "prune", "report", "pack", "explain"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_schema_is_a_schema_of_every_command_and_takes_nothing_else(cache_dir: Path) -> None:
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]["command"]["enum"]) == set(COMMANDS)
    document = run_json("list")
    for wrong in ({**document, "more": 1}, {**document, "schema": 2}, {"command": "list", "schema": 1}):
        with pytest.raises(AssertionError):
            check_document(wrong)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_quiet_and_verbose(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    shared = {"-q", "--quiet", "-v", "--verbose", "--json"} | ({"--cache-dir"} if name != "keys" else set())
    for each in getattr(command, "commands", {"": command}).values():
        assert shared <= {option for parameter in each.params for option in parameter.opts}


@pytest.mark.parametrize("name", READING)
def test_quiet_prints_no_note_and_is_silent_where_there_is_nothing_to_tell(name: str, cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    result = run(name, *READING[name], "-q")
    assert result.stderr == ""
    assert (result.stdout == "") is (name in SILENT)


def test_quiet_keeps_warnings_and_errors(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"good")
    next(cache_dir.glob("v*/blobs/*/*")).write_bytes(b"bad!")
    assert "corrupt: " in run("verify", "-q", code=1).stdout
    assert "exclude each other" in run("list", "-q", "-v", code=2).stderr
    assert "no entry is called" in run("show", "-q", "Other", code=2).stderr


@pytest.mark.parametrize("name", READING)
def test_a_given_folder_that_does_not_exist_is_a_usage_error(name: str, tmp_path: Path) -> None:
    result = run(name, *READING[name], "--cache-dir", str(tmp_path / "misspelt"), code=2)
    assert f"there is no cache at `{tmp_path / 'misspelt'}`" in result.stderr
    assert "sound" not in result.output
    assert not (tmp_path / "misspelt").exists()


@pytest.mark.parametrize("name", ["list", "verify"])
@pytest.mark.parametrize("given", ["default", "variable", "empty folder"])
def test_a_cache_that_is_not_there_yet_is_told_and_no_error(
    name: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHAIR_CACHE_HOME", raising=False)
    root, options = tmp_path / ".torchair_cache", ()
    origin = "the default; --cache-dir and $TORCHAIR_CACHE_HOME name others"
    if given == "variable":
        root, origin = tmp_path / "other", "$TORCHAIR_CACHE_HOME"
        monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(root))
    elif given == "empty folder":
        root, origin, options = tmp_path / "empty", "--cache-dir", ("--cache-dir", str(tmp_path / "empty"))
        root.mkdir()
    result = run(name, *READING[name], *options)
    assert f"note: there is no cache at `{root}` yet ({origin})" in result.stderr
    assert "sound" not in result.output
    assert list(root.iterdir() if root.exists() else []) == []
    assert run(name, *READING[name], *options, "-q").stderr == ""
    if name == "verify":
        assert (run_json(name, *options)["exists"], result.stdout) == (False, "")
