"""What the pages name exists: commands, options, targets of make, variables, functions, files, headings, pictures."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import click
import pytest

import gearcache
from gearcache.cli import COMMANDS, main
from tests.support.pages import DOCS, PAGES, ROOT, code_lines, headings, name_of, tokens

COMMAND = re.compile(r"(?:^|\$ |; |&& )gearcache ([a-z][a-z-]*)([^#;&]*)")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
VARIABLE = re.compile(r"\b(?:GEARCACHE|TORCHAIR)_[A-Z_]+\b")


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """The options of each command, `--help` included."""
    found = {}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        commands = [command, *getattr(command, "commands", {}).values()]
        parameters = [parameter for each in commands for parameter in each.params]
        own = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
        found[name] = own | {"-h", "--help"}
    return found


def unknown_commands(page: Path, options: dict[str, set[str]]) -> Iterator[str]:
    for line in code_lines(page):
        for name, rest in COMMAND.findall(line):
            if name not in COMMANDS:
                yield f"gearcache {name}"
            else:
                yield from (f"gearcache {name} {option}" for option in set(OPTION.findall(rest)) - options[name])


def resolve(name: str) -> object:
    """What a dotted name below `gearcache` stands for; `AttributeError` or `ImportError` where there is nothing."""
    found: object = gearcache
    path = "gearcache"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        elif path == name:  # a module, whose import may bring a large library
            assert find_spec(name) is not None, name
        else:
            found = importlib.import_module(path)
    return found


def test_every_command_and_option_exists(options: dict[str, set[str]]) -> None:
    assert [f"{name_of(page)}: {each}" for page in PAGES for each in unknown_commands(page, options)] == []


def test_an_option_without_its_command_is_one_of_some_command(options: dict[str, set[str]]) -> None:
    known = set[str]().union(*options.values())
    for program in (ROOT / "benchmarks").rglob("*.py"):
        known |= set(re.findall(r'"(--[a-z-]+)"', program.read_text(encoding="utf-8")))
    for page in DOCS:
        spans = [token.content for token in tokens(page) if token.type == "code_inline"]
        shown = {option for span in spans if span.startswith("--") for option in OPTION.findall(span)}
        assert shown <= known, name_of(page)


def test_every_target_of_make_and_every_benchmark_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    folder = ROOT / "benchmarks"
    for line in (line for page in PAGES for line in code_lines(page)):
        for target in re.findall(r"(?:^|; |&& )make ([a-z][a-z-]*)", line):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), line
        for program in re.findall(r"python -m benchmarks\.(\w+)", line):
            assert (folder / f"{program}.py").exists() or (folder / program / "__main__.py").exists(), line


def test_every_environment_variable_is_read_somewhere() -> None:
    files = [path for top in ("src", "cache", "guards", "ge_cache") for path in (ROOT / top).rglob("*.py")]
    known = {name for path in files for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    for page in DOCS:
        assert set(VARIABLE.findall(page.read_text(encoding="utf-8"))) <= known, name_of(page)


def test_every_function_and_option_of_the_api_exists() -> None:
    known = {field.name for field in fields(gearcache.CompilerConfig)}
    for token in (token for page in PAGES for token in tokens(page) if token.type == "code_inline"):
        for name in re.findall(r"(?<![\w./@-])gearcache(?:\.[A-Za-z_]\w*)+", token.content):
            resolve(name)
        for call in re.findall(r"CompilerConfig\(([^)]*)\)", token.content):
            assert set(re.findall(r"(\w+)=", call)) <= known, token.content


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures that are no addresses of the web."""
    for token in tokens(page):
        target = token.attrGet("href") if token.type == "link_open" else token.attrGet("src")
        if target is not None and "://" not in str(target):
            yield unquote(str(target))


def broken_links(page: Path) -> Iterator[str]:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.is_relative_to(ROOT) or not target.exists():
            yield f"`{link}`: no such file"
        elif anchor and anchor not in headings(target):
            yield f"`{link}`: no such heading; there are {', '.join(headings(target))}"


def test_every_link_leads_somewhere() -> None:
    assert [f"{name_of(page)}: {problem}" for page in PAGES for problem in broken_links(page)] == []


#: Picture -> the page that shows it, and the link to it.
SHOWN = {
    "call": ("ARCHITECTURE.md", "docs/call.svg"),
    "relaunch": ("docs/guide.md", "relaunch.svg"),
    "fleet": ("docs/fleet.md", "fleet.svg"),
}

each_picture = pytest.mark.parametrize("name", SHOWN)


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return __import__("pictures")


def checked_in(name: str) -> Path:
    return ROOT / "docs" / f"{name}.svg"


def test_every_picture_has_a_page(pictures: ModuleType) -> None:
    assert set(pictures.PICTURES) == set(SHOWN)


@each_picture
def test_a_picture_is_as_the_script_draws_it(pictures: ModuleType, name: str, tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.svg"
    pictures.PICTURES[name]().write(drawn)
    assert drawn.read_bytes() == checked_in(name).read_bytes(), "run `python scripts/pictures.py`"


@each_picture
def test_a_page_shows_the_picture(name: str) -> None:
    page, link = SHOWN[name]
    shown = [token for token in tokens(ROOT / page) if token.type == "image" and token.attrGet("src") == link]
    assert len(shown) == 1
    assert len(shown[0].content) > 40, "the picture needs a text for readers who do not see it"
