"""What the pages name exists: commands and their options, targets of make, variables, functions."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

import gearcache
from gearcache.cli import COMMANDS, main
from tests.support.pages import DOCS, PAGES, ROOT, code_lines, name_of, tokens

COMMAND = re.compile(r"(?:^|\$ |; |&& )gearcache ([a-z][a-z-]*)([^#;&]*)")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
PROGRAM = re.compile(r"python -m benchmarks\.(\w+)")


def options(name: str) -> set[str]:
    """The options of a command, `--help` included."""
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    commands = [command, *getattr(command, "commands", {}).values()]
    parameters = [parameter for each in commands for parameter in each.params]
    found = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    return found | {"-h", "--help"}


def unknown_commands(page: Path) -> Iterator[str]:
    for line in code_lines(page):
        for name, rest in COMMAND.findall(line):
            if name not in COMMANDS:
                yield f"gearcache {name}"
            else:
                yield from (f"gearcache {name} {option}" for option in set(OPTION.findall(rest)) - options(name))


def variables(text: str) -> set[str]:
    """The environment variables that a text names."""
    return set(re.findall(r"\b(?:GEARCACHE|TORCHAIR)_[A-Z_]+\b", text))


def resolve(name: str) -> object:
    """What a dotted name below `gearcache` stands for; `AttributeError` or `ImportError` where there is nothing."""
    found: object = gearcache
    path = "gearcache"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_exists(page: Path) -> None:
    assert list(unknown_commands(page)) == []


def test_an_unknown_command_and_an_unknown_option_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`gearcache lists`\n```\n$ gearcache prune --max-size 1GB --soon\n```\n")
    assert set(unknown_commands(page)) == {"gearcache lists", "gearcache prune --soon"}


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_an_option_without_its_command_is_one_of_some_command(page: Path) -> None:
    known = {option for name in COMMANDS for option in options(name)}
    for program in (ROOT / "benchmarks").rglob("*.py"):
        known |= set(re.findall(r'"(--[a-z-]+)"', program.read_text(encoding="utf-8")))
    spans = [token.content for token in tokens(page) if token.type == "code_inline"]
    shown = {option for span in spans if span.startswith("--") for option in OPTION.findall(span)}
    assert shown <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_target_of_make_and_every_benchmark_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in code_lines(page):
        for target in re.findall(r"(?:^|; |&& )make ([a-z][a-z-]*)", line):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), line
        for program in PROGRAM.findall(line):
            folder = ROOT / "benchmarks"
            assert (folder / f"{program}.py").exists() or (folder / program / "__main__.py").exists(), line


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_every_environment_variable_is_read_somewhere(page: Path) -> None:
    files = [path for top in ("src", "cache", "guards", "ge_cache") for path in (ROOT / top).rglob("*.py")]
    known = set[str]().union(*(variables(path.read_text(encoding="utf-8")) for path in files))
    assert variables(page.read_text(encoding="utf-8")) <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_function_and_option_of_the_api_exists(page: Path) -> None:
    known = {field.name for field in fields(gearcache.CompilerConfig)}
    for token in tokens(page):
        if token.type == "code_inline":
            for name in re.findall(r"(?<![\w./@-])gearcache(?:\.[A-Za-z_]\w*)+", token.content):
                resolve(name)
            for call in re.findall(r"CompilerConfig\(([^)]*)\)", token.content):
                assert set(re.findall(r"(\w+)=", call)) <= known, token.content
