"""The pictures that `scripts/pictures.py` draws: as checked in, readable on a phone, and shown on their pages."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.support.pages import ROOT, tokens

SVG = "{http://www.w3.org/2000/svg}"
#: Picture -> the page that shows it, and the link to it.
SHOWN = {
    "call": ("ARCHITECTURE.md", "docs/call.svg"),
    "relaunch": ("docs/guide.md", "relaunch.svg"),
    "fleet": ("docs/fleet.md", "fleet.svg"),
}

each_picture = pytest.mark.parametrize("name", SHOWN)


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return __import__("pictures")


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return __import__("drawing")


def checked_in(name: str) -> Path:
    return ROOT / "docs" / f"{name}.svg"


def test_every_picture_has_a_page(pictures: ModuleType) -> None:
    assert set(pictures.PICTURES) == set(SHOWN)


@each_picture
def test_a_picture_is_as_the_script_draws_it(pictures: ModuleType, name: str, tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.svg"
    pictures.PICTURES[name]().write(drawn)
    assert drawn.read_bytes() == checked_in(name).read_bytes(), "run `python scripts/pictures.py`"


@each_picture
def test_a_picture_fits_a_phone(name: str) -> None:
    root = ElementTree.parse(checked_in(name)).getroot()
    _, _, width, height = map(int, root.get("viewBox", "").split())
    assert width <= 420
    assert (root.get("width"), root.get("height")) == (str(width), str(height))
    sizes = re.findall(r"(\d+)px", root.findtext(f"{SVG}style") or "")
    assert min(map(int, sizes)) >= 13
    for shape in root.iter(f"{SVG}rect"):  # none lies outside, and none is a background
        left, top, wide, high = (int(shape.get(key, "")) for key in ("x", "y", "width", "height"))
        assert 0 <= left < left + wide <= width
        assert 0 <= top < top + high <= height
        assert high < height / 2


def test_a_text_that_is_too_wide_is_refused(drawing: ModuleType) -> None:
    picture = drawing.Picture("a title", "a description")
    picture.box(0, 100, 0, drawing.Row("start", "short"))
    with pytest.raises(ValueError, match="`much too long` is too wide for its box"):
        picture.box(0, 100, 0, drawing.Row("start", "short", "much too long"))


@each_picture
def test_a_page_shows_the_picture(name: str) -> None:
    page, link = SHOWN[name]
    shown = [token for token in tokens(ROOT / page) if token.type == "image" and token.attrGet("src") == link]
    assert len(shown) == 1
    assert len(shown[0].content) > 40, "the picture needs a text for readers who do not see it"
