"""Every Python snippet of the README and of `docs/` runs as it stands, in the order of its page.

The snippets of a page share one namespace. One that cannot run here has a comment above it that no reader sees,
`<!-- skip: next "the reason" -->`; it must be Python all the same.
"""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path
from unittest import SkipTest

import pytest
from sybil import Document, Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

from gearcache import CompilerConfig
from tests.support.pages import DOCS, PAGES, ROOT, name_of, tokens

#: What is not run. A snippet under another name would be missed.
OTHER_LANGUAGES = {"", "console", "text"}


def parse(page: Path) -> Document:
    return Sybil([PythonCodeBlockParser(), SkipParser()]).parse(page)


def snippets(page: Path) -> int:
    return sum(token.type == "fence" and token.info == "python" for token in tokens(page))


@pytest.fixture
def place(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder and a cache of its own, as a reader's first run has them; the backend needs no compiler."""
    monkeypatch.chdir(tmp_path)
    defaults = CompilerConfig.__init__.__defaults__
    assert defaults is not None
    assert defaults[0] == "auto"
    monkeypatch.setattr(CompilerConfig.__init__, "__defaults__", ("eager", *defaults[1:]))


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[types.ModuleType, int]:
    """Run the snippets of a page as one module, for classes have one; returns it and the number of snippets."""
    module = types.ModuleType(f"page_{page.stem.lower()}")
    module.__file__ = str(page)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    document = parse(page)
    document.namespace = vars(module)
    found = 0
    for example in document.examples():
        try:
            example.evaluate()
        except SkipTest:
            ast.parse(example.parsed)
        found += "source" in example.region.lexemes
    return module, found


@pytest.mark.parametrize("page", [page for page in DOCS if snippets(page)], ids=name_of)
@pytest.mark.usefixtures("place")
def test_every_snippet_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_page(page, monkeypatch)[1] == snippets(page)


@pytest.mark.usefixtures("place")
def test_the_readme_run_twice_compiles_four_graphs_and_then_loads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run_page(ROOT / "README.md", monkeypatch)[0].model.cached.stats for _ in range(2)]
    assert [(stats.compiles, stats.loads) for stats in runs] == [(4, 4), (0, 4)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_snippet_hides_under_another_name(page: Path) -> None:
    for token in tokens(page):
        if token.type in ("fence", "code_block") and token.info != "python":
            assert token.info in OTHER_LANGUAGES
            with pytest.raises(SyntaxError):
                ast.parse(token.content)


def test_the_pages_are_those_of_the_repository() -> None:
    assert {name_of(page) for page in DOCS} >= {"README.md", "docs/guide.md", "docs/npu.md"}
    assert (ROOT / "setup.cfg").exists()
