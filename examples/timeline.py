"""Draws the stages of a cold and of a relaunched process as two bars on one time axis, as an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

WIDTH, MARGIN, BAR, LINE = 960, 24, 26, 20
LETTER = 6.6  # approximate width of one at 12 pixels
COLOURS = {
    "start": "#7d8da1",
    "model": "#4a8fd8",
    "trace": "#d99a1c",
    "compile": "#d4574e",
    "gears": "#2ea36a",
    "answer": "#9868cf",
}
#: The picture has its own background: that of the embedding page may differ from the reader's system preference.
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .head { font-weight: 600; font-size: 14px }
.page { fill: #ffffff; stroke: #d1d9e0 } .grid { fill: #d1d9e0 } .axis { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .page { fill: #0d1117; stroke: #3d444d } .grid { fill: #3d444d } .axis { fill: #9198a1 }
}
"""


class Segment(NamedTuple):
    """One stage of a process."""

    name: str
    kind: str
    seconds: float


def segments(stages: Mapping[str, float]) -> Iterator[Segment]:
    """Yield the stages from the launch to the first result, one after the other; parallel compiles are one."""
    for name, seconds in stages.items():
        method, _, part = name.partition(": ")
        if name == "launch to first result":
            return
        if part == "trace":
            yield Segment(name, "trace", seconds)
        elif part == "trace, compile, store and load":
            traced = stages.get(f"{method}: trace", 0.0)
            yield Segment(f"{method}: compile, store, load", "compile", seconds - traced)
        elif part == "load all gears":
            yield Segment(name, "gears", seconds)
        elif not part:
            kind = {"load the model": "model"}.get(name, "answer" if name.startswith("first ") else "start")
            yield Segment("start Python" if name == "python" else name, kind, seconds)


def write_timeline(path: Path, title: str, processes: Mapping[str, Mapping[str, float]]) -> None:
    """Draw one bar for each process, named by its key, and print the place of the picture."""
    longest = max(stages["launch to first result"] for stages in processes.values())
    step = _step(longest)
    marks = [number * step for number in range(math.ceil(longest / step) + 1)]
    scale = (WIDTH - 2 * MARGIN) / marks[-1]
    picture = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    ElementTree.SubElement(picture, "title").text = title
    ElementTree.SubElement(picture, "style").text = STYLE
    page = _rectangle(picture, 0.5, 0.5, WIDTH - 1, 0)
    page.set("class", "page")
    top = MARGIN + 10
    _text(picture, MARGIN, top, title, "head")
    for process, stages in processes.items():
        top += 30
        head = f"{process}: first result after {_seconds(stages['launch to first result'])}"
        _text(picture, MARGIN, top, head, "head")
        for mark in marks:
            _rectangle(picture, MARGIN + mark * scale, top + 5, 1, BAR + 6).set("class", "grid")
        top = _bar(picture, list(segments(stages)), top + 8, scale)
    for mark in marks:
        _text(picture, MARGIN + mark * scale, top + 20, f"{mark:g} s", "axis").set("text-anchor", "middle")
    height = top + 36
    page.set("height", str(height - 1))
    picture.set("viewBox", f"0 0 {WIDTH} {height}")
    ElementTree.indent(picture)
    path.write_text(ElementTree.tostring(picture, encoding="unicode") + "\n", encoding="utf-8")
    print(f"\nthe timeline is in `{path}`")


def _bar(picture: ElementTree.Element, parts: list[Segment], top: int, scale: float) -> int:
    """Draw the stages of a process, and below them their times; returns the end of the drawing."""
    begin, left, line = float(MARGIN), float(MARGIN), top + BAR + LINE
    for part in parts:
        width = part.seconds * scale
        _rectangle(picture, begin, top, max(width - 0.5, 0.5), BAR).set("fill", COLOURS[part.kind])
        begin += width
        label = f"{part.name} {_seconds(part.seconds)}"
        if left + 30 + len(label) * LETTER > WIDTH - MARGIN:
            left, line = float(MARGIN), line + LINE
        _rectangle(picture, left, line - 9, 10, 10).set("fill", COLOURS[part.kind])
        _text(picture, left + 15, line, label)
        left += 30 + len(label) * LETTER
    return line + 8


def _rectangle(
    parent: ElementTree.Element, left: float, top: float, width: float, height: float
) -> ElementTree.Element:
    place = {"x": left, "y": top, "width": width, "height": height}
    return ElementTree.SubElement(parent, "rect", {name: f"{value:.1f}" for name, value in place.items()})


def _text(parent: ElementTree.Element, left: float, base: float, text: str, kind: str = "") -> ElementTree.Element:
    found = ElementTree.SubElement(parent, "text", {"x": f"{left:.1f}", "y": f"{base:.1f}", "class": kind})
    found.text = text
    return found


def _step(longest: float) -> float:
    """Return the distance of the marks on the axis: 1, 2 or 5 of something, at most ten of them."""
    power = 10.0 ** math.floor(math.log10(longest / 10))
    return next(power * factor for factor in (1, 2, 5, 10) if longest / (power * factor) <= 10)


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
