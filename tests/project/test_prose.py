"""The prose of the pages is plain English: patterns that read as translated do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.pages import DOCS, PAGES, name_of, tokens
from tests.support.source_tree import PACKAGE

#: Each pattern, and what to write instead.
BANNED = {
    r"(?<![Tt]here )\b(?:is|are) no (?!longer|more|less)\w+": "is not a …, or: there is no …",
    r"\btold\b": "reported, named, warned",
    r"\btells\b": "says, names, shows",
    r"\bhangs on\b": "depends on",
    r"\bwhoever\b": "a process that …, a user who …",
    r"(?:^|[.:;] )Who \w+ (?!.*\?)": "a process that …, or address the reader as you",
    r"\bits like\b|\bits kin\b": "name the others, or: similar ones",
    r"\bthe very same\b": "the same, identical",
    r"(?<![Tt]here )\b(?:is|are) none\b": "is not one",
    r"\bmended\b": "fixed",
    r"\banew\b": "again",
    r"\bas ever\b": "as always",
    r"\bfor ever\b": "forever, or: until …",
    r"\bin vain\b": "without success",
    r"\bwhat is (?:there|here|held)\b": "name it",
    r"\bmakes? no sense\b|\bof no use\b": "is invalid",
    r"\banother one in each\b": "differs between",
    r"\bit lies\b|\bthey lie\b": "it is in",
    r"\bthe (?:found|held|known|met|present|gone) (?:of|is|are|that)\b": "a noun, not a participle",
    r"\bhas to be had\b|\bto be had\b": "is available",
    r"\bnobody else's affair\b|\bis its own affair\b": "say what happens",
}
#: Prose with another task than to explain: what changed, in the words of earlier releases.
OTHERS = {"CHANGELOG.md"}
#: How a page begins: with what its reader can do afterwards.
FIRST = re.compile(r"After this page you (?:can|know)\b")


def prose(page: Path) -> Iterator[str]:
    """The text of a page, block by block, without headings and code."""
    in_heading = False
    for token in tokens(page):
        if token.type == "inline" and not in_heading:
            yield "".join(part.content if part.type == "text" else " " for part in token.children or ())
        in_heading = token.type == "heading_open"


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module, its classes and functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def banned(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for pattern, instead in BANNED.items():
            if (found := re.search(pattern, text)) is not None:
                yield f"`{found[0]}`: {instead} (in: {text[:80]})"


def test_no_page_holds_a_banned_pattern() -> None:
    pages = [page for page in PAGES if page.name not in OTHERS]
    assert [f"{name_of(page)}: {problem}" for page in pages for problem in banned(prose(page))] == []


def test_no_docstring_of_a_public_module_holds_a_banned_pattern() -> None:
    paths = sorted(PACKAGE.glob("*.py"))
    assert paths
    assert [f"{path.name}: {problem}" for path in paths for problem in banned(docstrings(path))] == []


def test_a_page_begins_with_what_its_reader_can_do_after_it() -> None:
    assert [name_of(page) for page in DOCS[1:] if not FIRST.match(next(prose(page)))] == []
