"""The page of a report in a real browser: it needs no script, shows the numbers of `--json`, and is safe."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.admin.tally import count_misses
from gearcache.cache.layout import Layout
from gearcache.cache.remote.tier_counts import TierCounts
from gearcache.cache.store import DiskStore
from gearcache.reporting.page import page
from tests.support.browser import Page, browser, find_browser
from tests.support.commands import run, run_json
from tests.support.recorded import HOSTILE, span, store_geared, write_trace

GRID = [f"ids.size(0)={batch}, ids.size(1)={length}" for batch in (1, 2, 4) for length in (16, 64)]
HOSTILE_NAME = "<script>document.title='owned'<img src=x onerror=alert(1)>"
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
NUMBERS = "[...document.querySelectorAll('data')].map(d => [d.dataset.at, d.getAttribute('value'), d.textContent])"


@pytest.fixture(scope="module")
def program() -> str:
    found = find_browser()
    if found is None:
        pytest.skip("there is no Chromium: see scripts/servers.sh")
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The page and the document of a cache with traffic, misses, a start, another deploy, and hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    cache = folder / HOSTILE_NAME
    for torch in ("2.12.0", "2.13.0"):
        key = store_geared(cache, "Model.decode", GRID, torch=torch, checks=(True, False))
    shutil.copytree(cache, folder / "other")
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
    spans = (
        span("torch", "fetch", 0.1, 4.0),
        span("decode", "prepare", 4.2, 0.3),
        span("decode", "answer", 4.2, 0.5),
        span(HOSTILE, HOSTILE, 4.3, 0.1),
        span("of an object", "toString", 4.45, 0.05),
    )
    trace = write_trace(
        folder / "start.json", row, {"method": "Model.elsewhere", "gears": {"x.size(0)=1": 1}}, spans=spans
    )
    # What no date is must not keep the page from being drawn.
    own = json.loads(trace.read_text())
    own["gearcache"] |= {"began": 1e15, "final": False, "dropped": 3}
    trace.write_text(json.dumps(own))
    os.utime(Layout(cache).manifest(hostile), (3e11, 3e11))
    target = folder / "cache.html"
    document = run_json(
        *("report", "--cache-dir", str(cache), "--trace", str(trace)),
        *("--compare", str(folder / "other"), "--output", str(target)),
    )
    return target, document


@pytest.fixture(scope="module")
def drawn(program: str, report: tuple[Path, Any]) -> Iterator[Page]:
    with browser(program) as opened:
        opened.look()
        opened.open(report[0])
        opened.run(OPEN_ALL)
        yield opened


def at(document: Any, pointer: str) -> Any:
    """What stands at a JSON pointer."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


class Markup(HTMLParser):
    """The elements of a page, and the text in some of them."""

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


def large(number: int) -> dict[str, Any]:
    """The document of a cache with so many entries, of 12 gears each."""
    gears = [{"gear": gear, "variant": 0, "seconds": 1.5 + index, "size": 10**6} for index, gear in enumerate(GRID * 2)]
    entries = [
        {
            "method": f"Model{index % 50}.decode",
            "key": sha256(str(index).encode()).hexdigest(),
            "ranks": "",
            "size": 10**6 + index,
            "created": 1.79e9 + index,
            "last_use": 1.79e9 + 2 * index,
            "hits": index,
            "compile_seconds": 18.25,
            "torch": "2.13.0",
            "is_read": True,
            "owner": "",
            "gears": gears,
            "variants": [[]],
            "differs": None,
        }
        for index in range(number)
    ]
    used = {"entries": number // 50, "gears": 12, "size": 1, "hits": 1, "misses": 0, "hit_rate": 1.0}
    used |= {"misses_by_reason": {}, "compile_seconds": 1.0, "compile_seconds_saved": 1.0, "last_use": 1.79e9}
    methods = [
        {"method": f"Model{index}.decode", **used, "owner": "", "traffic": None, "names": {}} for index in range(50)
    ]
    return {**run_json("report"), "entries": entries, "methods": methods}


def test_a_page_of_a_thousand_entries_is_below_a_megabyte(cache_dir: Path) -> None:
    assert len(page(large(1000)).encode()) < 1_000_000


def test_every_number_of_the_page_is_that_of_the_document(drawn: Page, report: tuple[Path, Any]) -> None:
    document = report[1]
    shown = drawn.run(NUMBERS)
    for pointer, value, text in shown:
        expected = at(document, pointer)
        assert json.loads(value) == expected, pointer
        if type(expected) is int and re.fullmatch(r"\d+", text):
            assert int(text) == expected, pointer
        elif re.fullmatch(r"[\d.]+%", text):
            assert text == f"{100 * expected:.1f}%", pointer
        elif found := re.fullmatch(r"([\d.]+) (B|kB|MB|GB)", text):
            unit = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[found[2]]
            assert abs(float(found[1]) * unit - expected) <= unit / 20 + 1e-9, pointer
        elif found := re.fullmatch(r"([\d.]+) (ms|s)", text):
            unit = {"ms": 1e-3, "s": 1.0}[found[2]]
            assert abs(float(found[1]) * unit - expected) <= unit / 2 + 1e-9, pointer
        else:
            assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|-|no date|\d+ min \d+ s", text), (pointer, text)
    places = {pointer for pointer, _, _ in shown}
    for wanted in (
        "/tiers/0/hits",
        "/overview/size",
        "/overview/misses_by_reason/source",
        "/overview/eviction/next/0/frees",
    ):
        assert wanted in places
    for number in range(len(GRID)):
        assert f"/methods/0/traffic/gears/{number}/calls" in places
    assert {"/methods/0/traffic/outside/0/calls", "/methods/0/traffic/suggested/padding", "/misses/0/times"} <= places
    assert {"/starts/0/seconds", "/starts/0/spans/3/seconds", "/deploys/only_a/0/gears"} <= places
    assert {f"/entries/{number}/size" for number in range(3)} <= places


def test_hostile_texts_are_shown_as_texts_without_an_error_and_no_network_is_asked(drawn: Page) -> None:
    assert drawn.problems == []
    assert drawn.run("document.title").startswith("gearcache: ")
    assert drawn.run("document.querySelectorAll('img, iframe').length") == 0
    body = drawn.run("document.body.innerText")
    assert HOSTILE in body
    assert "onerror=alert(1)" in drawn.run("document.querySelector('#misses').innerText")


def test_the_heat_map_has_a_cell_for_each_gear_and_names_shapes_outside(drawn: Page) -> None:
    rows = drawn.run("[...document.querySelector('table.heat').rows].map(r => [...r.cells].map(c => c.textContent))")
    head, *body = rows
    assert head[1:] == ["16", "50", "64"]
    assert [row[0] for row in body] == ["1", "2", "3", "4", "8"]
    assert body[0][1:] == ["0", "–", "10"]
    assert body[2][1:] == ["–", "7 padded", "–"]
    assert body[4][1:] == ["4 outside", "–", "–"]


def test_the_keyboard_reaches_and_opens_everything(program: str, report: tuple[Path, Any]) -> None:
    with browser(program) as opened:
        opened.look()
        opened.open(report[0])
        met = []
        for _ in range(60):
            opened.press("Tab", 9)
            name = opened.run(
                "(e => e.id || e.getAttribute('aria-label') || e.textContent.slice(0, 30))(document.activeElement)"
            )
            met.append(name)
            if opened.run("document.activeElement.tagName") == "SUMMARY" and not opened.run(
                "document.activeElement.parentElement.open"
            ):
                opened.press("Enter", 13, "\r")
        assert met[0] == "Skip to the report"
        assert {"Calls per gear of Model.decode", "Timeline of start.json"} <= set(met)
        assert opened.run("document.querySelectorAll('details:not([open])').length") == 0
        assert opened.problems == []


def test_the_page_is_never_wider_than_its_window(drawn: Page) -> None:
    width = 320
    drawn.look(width=width)
    assert drawn.run("document.documentElement.scrollWidth") <= width
