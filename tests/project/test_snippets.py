"""Every Python snippet of the README and of `docs/` runs as it stands, in the order of its page.

The snippets of a page share one namespace. One that cannot run here has a comment above it that no reader sees,
`<!-- skip: next "the reason" -->`; it must be Python all the same. One that begins with `# name.py` is a file as well,
which the others of its page import.
"""

from __future__ import annotations

import ast
import re
import sys
import types
from pathlib import Path
from unittest import SkipTest

import pytest
from sybil import Document, Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

from gearcache import CompilerConfig
from tests.support.pages import DOCS, PAGES, ROOT, code_lines, name_of, tokens

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


def write_files(page: Path, folder: Path) -> dict[str, str]:
    """Write the snippets that begin with `# name.py` into a folder; returns them by name of the module."""
    blocks = [token.content for token in tokens(page) if token.type == "fence" and token.info == "python"]
    files = {found[1]: block for block in blocks if (found := re.match(r"# (\w+)\.py\n", block))}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return files


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[types.ModuleType, int]:
    """Run the snippets of a page as one module, for classes have one; returns it and the number of snippets."""
    module = types.ModuleType(f"page_{page.stem.lower()}")
    module.__file__ = str(page)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(Path.cwd())
    for name in write_files(page, Path.cwd()):
        monkeypatch.setitem(sys.modules, name, module)  # so that the module of this name is forgotten afterwards
        del sys.modules[name]
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


#: Traces of transformers take long; `tests/integrations` calls the functions of this page in the same way.
SLOW = {"docs/transformers.md"}
SHOWN = [
    pytest.param(page, id=name_of(page), marks=[pytest.mark.thorough] if name_of(page) in SLOW else [])
    for page in DOCS
    if snippets(page)
]


@pytest.mark.parametrize("page", SHOWN)
@pytest.mark.usefixtures("place")
def test_every_snippet_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_page(page, monkeypatch)[1] == snippets(page)


@pytest.mark.usefixtures("place")
def test_the_readme_run_twice_compiles_four_graphs_and_then_loads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run_page(ROOT / "README.md", monkeypatch)[0].model.cached.stats for _ in range(2)]
    assert [(stats.compiles, stats.loads) for stats in runs] == [(4, 4), (0, 4)]
    said = [f"{stats.traces} traces, {stats.compiles} graphs compiled, {stats.loads} loaded" for stats in runs]
    lines = list(code_lines(ROOT / "README.md"))
    assert [lines[number + 1] for number, line in enumerate(lines) if line == "$ python serve.py"] == said


def test_no_snippet_hides_under_another_name() -> None:
    assert {name_of(page) for page in PAGES} >= {"README.md", "docs/guide.md", "docs/npu.md"}
    for token in (token for page in PAGES for token in tokens(page)):
        if token.type in ("fence", "code_block") and token.info != "python":
            assert token.info in OTHER_LANGUAGES
            with pytest.raises(SyntaxError):
                ast.parse(token.content)
