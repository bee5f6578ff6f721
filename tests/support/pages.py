"""The pages of the documentation, and what stands in them as code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*DOCS, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"))]


def name_of(page: Path) -> str:
    """A page as a test's id names it."""
    return page.relative_to(ROOT).as_posix()


@cache
def tokens(page: Path) -> list[Token]:
    """All tokens of a page as GitHub reads it, those inside of paragraphs and table cells too; read once."""
    parsed = MarkdownIt("gfm-like", {"linkify": False}).parse(page.read_text(encoding="utf-8"))
    return [each for token in parsed for each in (token, *(token.children or ()))]


def code_lines(page: Path) -> Iterator[str]:
    """Each line of the blocks that are no Python, and each span of code."""
    for token in tokens(page):
        if token.type == "code_inline":
            yield token.content
        elif token.type in ("fence", "code_block") and token.info != "python":
            yield from token.content.splitlines()


def headings(page: Path) -> Iterator[str]:
    """The anchors of a page's headings, as GitHub and the site name them."""
    inside = False
    for token in tokens(page):
        if inside and token.type == "inline":
            yield re.sub(r"[^\w\- ]", "", _plain(token).lower()).replace(" ", "-")
        inside = token.type == "heading_open"


def _plain(token: Token) -> str:
    return "".join(child.content for child in token.children or ())
