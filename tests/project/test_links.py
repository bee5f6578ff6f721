"""Every link of a page leads to a file of the repository that exists, and to a heading in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tests.support.pages import PAGES, ROOT, headings, name_of, tokens


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures that are no addresses of the web."""
    for token in tokens(page):
        target = token.attrGet("href") if token.type == "link_open" else token.attrGet("src")
        if target is not None and "://" not in str(target):
            yield unquote(str(target))


def problems(page: Path) -> Iterator[str]:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.is_relative_to(ROOT) or not target.exists():
            yield f"`{link}`: no such file"
        elif anchor and anchor not in headings(target):
            yield f"`{link}`: no such heading; there are {', '.join(headings(target))}"


def test_every_link_leads_somewhere() -> None:
    assert [f"{name_of(page)}: {problem}" for page in PAGES for problem in problems(page)] == []
