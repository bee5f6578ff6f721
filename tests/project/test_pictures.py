"""The pictures that `scripts/pictures.py` draws: as checked in, readable in both schemes, and shown on their pages."""

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
#: What WCAG asks for: of text, and of lines.
TEXT_CONTRAST, LINE_CONTRAST = 4.5, 3.0

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


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_lines_stand_out_in_both_schemes(drawing: ModuleType, scheme: str) -> None:
    colours = drawing.SCHEMES[scheme]
    for ground in (colours["fill"], colours["panel"]):
        assert min(contrast(colours[kind], ground) for kind in ("text", "soft")) >= TEXT_CONTRAST
        assert min(contrast(colours[kind], ground) for kind in drawing.KINDS) >= LINE_CONTRAST
    # Arrows also lie between panels, on a page that may have the other scheme.
    for ground in (colours["panel"], "#ffffff", "#0d1117"):
        assert contrast(drawing.ARROW, ground) >= LINE_CONTRAST


@each_picture
def test_a_page_shows_the_picture(name: str) -> None:
    page, link = SHOWN[name]
    shown = [token for token in tokens(ROOT / page) if token.type == "image" and token.attrGet("src") == link]
    assert len(shown) == 1
    assert len(shown[0].content) > 40, "the picture needs a text for readers who do not see it"
