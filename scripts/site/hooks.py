"""Extends mkdocs: adds pages from outside `docs/`, and links that lead to files of the repository.

On GitHub a link leads from file to file. On the site it leads to the page of that file; a file without a page (a test,
a script) gets one with its text, so the site needs no address of a repository.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
#: File of the repository -> page of the site; files in `docs/` keep their names.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
    "scripts/site/api.md": "api.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
LANGUAGES = {".py": "python", ".sh": "bash", ".h": "cpp", ".cpp": "cpp"}

logger = logging.getLogger("mkdocs.hooks.gearcache")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside `docs/`, and one for each file that a page links to."""
    sources = {file.src_uri: f"docs/{file.src_uri}" for file in files}
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
        sources[page] = name
    for name in sources.values():
        if name.endswith(".md"):
            for target in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
                linked = _linked(name, target)
                page = _page(linked)
                if page not in sources and (ROOT / linked).is_file() and files.get_file_from_path(page) is None:
                    files.append(File.generated(config, page, content=_listing(linked)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files into links between pages."""
    names = {site: name for name, site in PAGES.items()}
    here = page.file.src_uri
    name = names.get(here, f"docs/{here}")

    def lead(match: re.Match[str]) -> str:
        target = _page(_linked(name, match[1]))
        if files.get_file_from_path(target) is None:
            logger.warning("%s links to `%s`, which is no file", name, match[1])
        return posixpath.relpath(target, posixpath.dirname(here) or ".")

    return markdown if here.startswith("source/") else LINK.sub(lead, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Find lists and tables without an empty line above them: GitHub shows them, mkdocs treats them as text."""
    for paragraph in re.findall(r"<p>(.*?)</p>", html, re.DOTALL):
        found = re.search(r"^(- |\|).*", re.sub(r"<[^>]+>", "", paragraph), re.MULTILINE)
        if found is not None:
            logger.warning("%s: an empty line is missing above `%s`", page.file.src_uri, found[0])
    return html


def _linked(name: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _page(linked: str) -> str:
    if linked.startswith("docs/"):
        return linked.removeprefix("docs/")
    return PAGES.get(linked, f"source/{linked}.md")


def _listing(linked: str) -> str:
    text = (ROOT / linked).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(linked).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# {linked}\n\n~~~~~~ {language}\n{text}~~~~~~\n"
