"""The page of a report in a real browser: it needs no script, shows the numbers of `--json`, and is safe."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.admin.tally import count_misses
from gearcache.cache.layout import Layout
from gearcache.cache.remote.tier_counts import TierCounts
from gearcache.cache.store import DiskStore
from gearcache.commands.common import seconds_text
from tests.support.browser import Page, browser, find_browser
from tests.support.commands import run, run_json
from tests.support.recorded import HOSTILE, store_geared, write_trace

GRID = [f"ids.size(0)={batch}, ids.size(1)={length}" for batch in (1, 2, 4) for length in (16, 64)]
HOSTILE_NAME = "<script>document.title='owned'<img src=x onerror=alert(1)>"
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
FOCUSED = "(e => e.id || e.getAttribute('aria-label') || e.textContent.slice(0, 30))(document.activeElement)"
TILES = "[...document.querySelectorAll('.tiles div')].map(d => [...d.children].map(c => c.innerText))"
ROWS = "[...document.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.innerText.trim()))"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The page and the document of a cache with traffic, misses, a recorded process, and hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    cache = folder / HOSTILE_NAME
    for torch in ("2.12.0", "2.13.0"):
        key = store_geared(cache, "Model.decode", GRID, torch=torch, checks=(True, False))
    disk = DiskStore(Layout(cache))
    assert disk.use(key)
    disk.count_load(key)
    hostile = store_geared(cache, "Model.hostile", [HOSTILE, f"{HOSTILE}2"], checks=(HOSTILE, "plain"), torch=HOSTILE)
    TierCounts(Layout(cache), HOSTILE).add(hits=3, bytes_fetched=10)
    count_misses(Layout(cache), "Model.decode", ["absent", "source", "source", HOSTILE])
    reason = {"kind": "source", "text": HOSTILE, "subject": HOSTILE, "stored": "a" * 64, "present": "b" * 64}
    # Reasons are names of files, which whoever can write to the cache chooses.
    (Layout(cache).bucket / "misses" / "Model.decode" / HOSTILE_NAME).write_bytes(b"--")
    row = {
        "method": "Model.decode",
        "gears": {gear: 10 * number for number, gear in enumerate(GRID)},
        "padded": {"ids.size(0)=3, ids.size(1)=50": 7},
        "eager_reasons": {"on_miss": 3},
        "refused_errors": {HOSTILE: 2},
        "dims": ["ids.size(0)", "ids.size(1)"],
        "shapes": [{"shape": [8, 16], "calls": 4}],
        "reasons": [{**reason, "file": HOSTILE, "line": 3, "times": 2}],
    }
    trace = write_trace(folder / "start.json", row, {"method": "Model.elsewhere", "gears": {"x.size(0)=1": 1}})
    # What no date is must not keep the page from being drawn.
    own = json.loads(trace.read_text())
    own["gearcache"] |= {"began": 1e15, "command": HOSTILE}
    trace.write_text(json.dumps(own))
    os.utime(Layout(cache).manifest(hostile), (3e11, 3e11))
    target = folder / "cache.html"
    return target, run_json("report", "--cache-dir", str(cache), "--trace", str(trace), "--output", str(target))


@pytest.fixture(scope="module")
def opened() -> Iterator[Page]:
    program = find_browser()
    if program is None:
        pytest.skip("there is no Chromium: see scripts/servers.sh")
    with browser(program) as page:
        yield page


@pytest.fixture
def drawn(opened: Page, report: tuple[Path, Any]) -> Page:
    """The page as it is after its load, with nothing opened."""
    opened.look()
    opened.open(report[0])
    return opened


class Markup(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_nothing_of_a_manifest_becomes_markup_and_no_script_is_there_or_may_run(report: tuple[Path, Any]) -> None:
    elements = Markup(report[0].read_text()).elements
    headers = {attributes.get("http-equiv"): attributes.get("content") or "" for _, attributes in elements}
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "script-src" not in policy
    assert not {"script", "img", "iframe", "object", "link", "base", "form"} & {tag for tag, _ in elements}
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on") or name == "style"]
    for _, attributes in elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith("#")


def test_without_jinja2_the_command_says_what_to_install(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "gearcache[report]" in run("report", "--output", str(tmp_path / "page.html"), code=2).stderr
    assert run_json("report")["entries"] == []


def test_the_page_shows_the_numbers_of_the_document(drawn: Page, report: tuple[Path, Any]) -> None:
    document = report[1]
    drawn.run(OPEN_ALL)
    rows = {tuple(row) for row in drawn.run(ROWS)}
    numbered = {row[:2] for row in rows}
    for name, number in document["overview"]["misses_by_reason"].items():
        assert (" ".join(name.split()), str(number)) in numbered
    (decode,) = (each for each in document["methods"] if each["method"] == "Model.decode")
    traffic = decode["traffic"]
    calls = {row.get("gear") or row["text"]: str(row["calls"]) for row in (*traffic["gears"], *traffic["outside"])}
    assert {(decode["names"].get(text, text), number) for text, number in calls.items()} <= numbered
    keys = {row[0].split()[0]: row[2] for row in rows if re.match("[0-9a-f]{12}", row[0])}
    assert keys == {entry["key"][:12]: str(entry["hits"]) for entry in document["entries"]}
    tiles = dict(drawn.run(TILES))
    overview = document["overview"]
    assert tiles["Hits"] == str(overview["hits"])
    assert tiles["Misses"] == str(overview["misses"])
    assert tiles["Hit rate"] == f"{100 * overview['hit_rate']:.1f}%"
    assert tiles["Compile time"] == seconds_text(overview["compile_seconds"])


def test_hostile_texts_are_shown_as_texts_without_an_error_and_no_network_is_asked(drawn: Page) -> None:
    drawn.run(OPEN_ALL)
    assert drawn.problems == []
    assert drawn.run("document.title").startswith("gearcache: ")
    assert drawn.run("document.querySelectorAll('img, iframe').length") == 0
    body = drawn.run("document.body.innerText")
    assert HOSTILE in body
    assert "onerror=alert(1)" in drawn.run("document.querySelector('#misses').innerText")


def test_the_keyboard_reaches_and_opens_everything(drawn: Page) -> None:
    met = []
    for _ in range(60):
        drawn.press("Tab", 9)
        met.append(drawn.run(FOCUSED))
        if drawn.run("document.activeElement.matches('details:not([open]) > summary')"):
            drawn.press("Enter", 13, "\r")
    assert met[0] == "Skip to the report"
    assert drawn.run("document.querySelectorAll('details:not([open])').length") == 0


def test_the_page_is_never_wider_than_its_window(drawn: Page) -> None:
    width = 320
    drawn.run(OPEN_ALL)
    drawn.look(width=width)
    assert drawn.run("document.documentElement.scrollWidth") <= width
