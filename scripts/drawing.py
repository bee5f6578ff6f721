"""Boxes, arrows and panels of the pictures in `docs/`, as SVG that is readable on a phone, in light and in dark mode.

A picture is transparent between its panels, and every text is within a filled shape. So it stays readable where the
page is dark and the reader's system is not, or the other way round. Sizes are units of the viewBox, about one pixel.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

WIDTH, RADIUS, PADDING, BAR = 400, 8, 10, 22
LINE, BOX, LOW, HEADING = 18, 46, 30, 34  # a line, a box with two of them, one with one, the head of a panel
HEAD, TEXT = 14, 13
#: Em widths of DejaVu Sans, wider than what phones and desktops have for system-ui; bold letters have 1.13 times these.
LETTERS = {"ijl'|.,:;! ": 0.34, "frt()[]-/": 0.42, "acekosvxyz_?": 0.62, "bdghnpqu0123456789": 0.64, "mMwW→": 0.99}
CAPITAL, BOLD, FIXED = 0.79, 1.13, 0.61
#: Of each scheme: fills and letters, and the bar of a box by what the box does, in the colours of docs/timeline.svg.
SCHEMES = {
    "light": {
        "panel": "#f0f3f6",
        "edge": "#c8d1da",
        "fill": "#ffffff",
        "text": "#1f2328",
        "soft": "#59636e",
        "start": "#6a7a8e",
        "look": "#2f7fd0",
        "trace": "#b37400",
        "compile": "#cf4a41",
        "gears": "#1f8a58",
        "answer": "#8a57c4",
    },
    "dark": {
        "panel": "#1b222c",
        "edge": "#465060",
        "fill": "#0d1117",
        "text": "#f0f6fc",
        "soft": "#a9b3be",
        "start": "#8b9bb0",
        "look": "#58a6f0",
        "trace": "#dba32c",
        "compile": "#ef7168",
        "gears": "#3cba7c",
        "answer": "#b283e8",
    },
}
KINDS = ("start", "look", "trace", "compile", "gears", "answer")
ARROW = "#7d8794"  # in front of a white page, a black one, and both panels


class Box(NamedTuple):
    """The place of a box."""

    left: int
    top: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """The end to the right."""
        return self.left + self.width

    @property
    def bottom(self) -> int:
        """The end below."""
        return self.top + self.height

    @property
    def middle(self) -> int:
        """Half of the height."""
        return self.top + self.height // 2

    @property
    def centre(self) -> int:
        """Half of the width."""
        return self.left + self.width // 2


class Row(NamedTuple):
    """What a box says: one thing, in one line or two."""

    kind: str
    head: str
    text: str = ""
    is_code: bool = False


def text_width(text: str, kind: str) -> float:
    """Return how wide a text of a class is at most."""
    if kind == "code":
        return len(text) * FIXED * TEXT
    ems = sum(next((width for some, width in LETTERS.items() if letter in some), CAPITAL) for letter in text)
    return ems * (HEAD * BOLD if kind == "head" else TEXT)


def style() -> str:
    """Return the style sheet, with both schemes."""
    fonts = (
        f"\ntext {{ font: {TEXT}px system-ui, sans-serif }} .head {{ font-weight: 600; font-size: {HEAD}px }}\n"
        ".code { font-family: ui-monospace, monospace } .middle { text-anchor: middle }\n"
        f".arrow {{ fill: none; stroke: {ARROW}; stroke-width: 2 }} .tip {{ fill: {ARROW} }}\n"
        ".dashed { stroke-dasharray: 5 4 }\n"
    )
    return f"{fonts}{_scheme('light')}@media (prefers-color-scheme: dark) {{\n{_scheme('dark')}}}\n"


def _scheme(name: str) -> str:
    colours = SCHEMES[name]
    bars = " ".join(f".{kind} {{ fill: {colours[kind]} }}" for kind in KINDS)
    return (
        f"text {{ fill: {colours['soft']} }} .head, .code {{ fill: {colours['text']} }}\n"
        f".panel {{ fill: {colours['panel']}; stroke: {colours['edge']} }} .label {{ fill: {colours['panel']} }}\n"
        f".box {{ fill: {colours['fill']}; stroke: {ARROW} }} .face {{ fill: {colours['fill']} }}\n{bars}\n"
    )


class Picture:
    """A picture that grows from top to bottom: panels lie below arrows, and arrows below boxes."""

    def __init__(self, title: str, description: str) -> None:
        named = {"role": "img", "aria-labelledby": "title", "aria-describedby": "description"}
        self._root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **named})
        ElementTree.SubElement(self._root, "title", {"id": "title"}).text = title
        ElementTree.SubElement(self._root, "desc", {"id": "description"}).text = description
        ElementTree.SubElement(self._root, "style").text = style()
        self._panels, self._arrows, self._boxes = (ElementTree.SubElement(self._root, "g") for _ in range(3))
        self._end = 0

    def panel(self, top: int, bottom: int, heading: str, left: int, *, copies: int = 0) -> Box:
        """Draw the ground of some boxes, under a heading; copies below it say that there are several."""
        for copy in range(copies, 0, -1):
            behind = Box(1 + 8 * copy, bottom - 20, WIDTH - 2 - 16 * copy, 20 + 4 * copy)
            _shape(self._panels, behind, "panel", RADIUS + 4)
        place = Box(1, top, WIDTH - 2, bottom - top)
        group = _shape(self._panels, place, "panel", RADIUS + 4)
        _text(group, place, left, top + 23, heading, "head")
        self._end = max(self._end, bottom + 1)
        return place

    def box(self, left: int, width: int, top: int, row: Row, height: int = 0) -> Box:
        """Draw a box with a coloured bar at its left."""
        place = Box(left, top, width, height or (BOX if row.text else LOW))
        group = _shape(self._boxes, place, "box", RADIUS)
        bar = {"x": left + 8, "y": top + 8, "width": 4, "height": place.height - 16, "rx": 2}
        ElementTree.SubElement(group, "rect", {**{name: str(value) for name, value in bar.items()}, "class": row.kind})
        base = place.middle + 5 - (LINE // 2 if row.text else 0)
        _text(group, place, left + BAR, base, row.head, "head")
        if row.text:
            _text(group, place, left + BAR, base + LINE, row.text, "code" if row.is_code else "text")
        return place

    def chip(self, left: int, top: int, text: str, *, is_absent: bool = False) -> Box:
        """Draw a small box, as wide as its text; a dashed edge says that the thing is absent."""
        place = Box(left, top, round(text_width(text, "text")) + 2 * PADDING, 26)
        group = _shape(self._boxes, place, "box dashed" if is_absent else "box", 13)
        _text(group, place, place.centre, place.middle + 5, text, "text middle")
        return place

    def chips(self, left: int, top: int, texts: Iterable[str], *, are_absent: bool = False) -> list[Box]:
        """Draw chips in a row."""
        found: list[Box] = []
        for text in texts:
            found.append(self.chip(found[-1].right + 6 if found else left, top, text, is_absent=are_absent))
        return found

    def store(self, left: int, width: int, top: int, row: Row) -> Box:
        """Draw a place that keeps entries, as a drum."""
        place = Box(left, top, width, BOX + 24)
        group = _shape(self._boxes, Box(left, top + 8, width, place.height - 16), "face", 0)
        arc = f"a {width / 2:g} 8 0 0"
        side = f"M {left} {top + 8} V {place.bottom - 8} {arc} 0 {width} 0 V {top + 8}"
        lid = f"M {left} {top + 8} {arc} 0 {width} 0 {arc} 0 {-width} 0 Z"
        for path in (side, lid):
            ElementTree.SubElement(group, "path", {"d": path, "class": "box"})
        _text(group, place, place.centre, top + 36, row.head, "head middle")
        _text(group, place, place.centre, top + 36 + LINE, row.text, "text middle")
        return place

    def label(self, centre: int, middle: int, text: str) -> Box:
        """Write a text onto an arrow within a panel, which it interrupts."""
        width = round(text_width(text, "text")) + 8
        place = Box(centre - width // 2, middle - 9, width, 18)
        _text(_shape(self._boxes, place, "label", 0), place, centre, middle + 5, text, "text middle")
        return place

    def note(self, left: int, width: int, top: int, text: str) -> Box:
        """Write a line onto a panel."""
        place = Box(left, top, width, LINE)
        _text(_shape(self._boxes, place, "label", 0), place, left, top + 13, text, "text")
        return place

    def arrow(self, *points: tuple[int, int], has_tip: bool = True) -> None:
        """Draw an arrow over points; each line of it is level or upright, and its corners are round."""
        path = f"M {points[0][0]} {points[0][1]}"
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            (x1, y1), (x2, y2) = _towards(corner, before, 6), _towards(corner, after, 6)
            path += f" L {x1} {y1} Q {corner[0]} {corner[1]} {x2} {y2}"
        end = _towards(points[-1], points[-2], 6) if has_tip else points[-1]
        ElementTree.SubElement(self._arrows, "path", {"d": f"{path} L {end[0]} {end[1]}", "class": "arrow"})
        if has_tip:
            (x, y), (back_x, back_y) = points[-1], _towards(points[-1], points[-2], 8)
            wide, high = (0, 5) if back_y == y else (5, 0)
            tip = f"M {x} {y} L {back_x - wide} {back_y - high} L {back_x + wide} {back_y + high} Z"
            ElementTree.SubElement(self._arrows, "path", {"d": tip, "class": "tip"})

    def column(self, left: int, width: int, top: int, rows: Iterable[Row], gap: int = 16) -> list[Box]:
        """Draw boxes below each other, with an arrow from each to the next."""
        found: list[Box] = []
        for row in rows:
            place = self.box(left, width, found[-1].bottom + gap if found else top, row)
            if found:
                self.arrow((place.centre, found[-1].bottom), (place.centre, place.top))
            found.append(place)
        return found

    def write(self, path: Path) -> None:
        """Write the file, in its own size: pages make it smaller where they are narrow, and never larger."""
        size = {"viewBox": f"0 0 {WIDTH} {self._end}", "width": str(WIDTH), "height": str(self._end)}
        for name, value in size.items():
            self._root.set(name, value)
        ElementTree.indent(self._root)
        path.write_text(ElementTree.tostring(self._root, encoding="unicode") + "\n", encoding="utf-8")


def _shape(parent: ElementTree.Element, place: Box, kind: str, radius: int) -> ElementTree.Element:
    """Return a group that holds a filled rectangle, for the texts on it."""
    group = ElementTree.SubElement(parent, "g")
    place_of = zip(("x", "y", "width", "height"), map(str, place), strict=True)
    ElementTree.SubElement(group, "rect", {**dict(place_of), "rx": str(radius), "class": kind})
    return group


def _text(group: ElementTree.Element, place: Box, at: int, base: int, text: str, kind: str) -> None:
    room = place.width if kind.endswith("middle") else place.right - at - 4
    if text_width(text, kind.split()[0]) > room:
        raise ValueError(f"`{text}` is too wide for its box")
    ElementTree.SubElement(group, "text", {"x": str(at), "y": str(base), "class": kind}).text = text


def _towards(start: tuple[int, int], end: tuple[int, int], steps: int) -> tuple[int, int]:
    """Return the point some units from the start of an upright or level line."""
    (x, y), (to_x, to_y) = start, end
    return x + steps * ((to_x > x) - (to_x < x)), y + steps * ((to_y > y) - (to_y < y))
