"""The pictures that `scripts/pictures.py` draws: as checked in, readable on a phone, and shown on their pages."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support.pages import ROOT, tokens

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
def test_a_page_shows_the_picture(name: str) -> None:
    page, link = SHOWN[name]
    shown = [token for token in tokens(ROOT / page) if token.type == "image" and token.attrGet("src") == link]
    assert len(shown) == 1
    assert len(shown[0].content) > 40, "the picture needs a text for readers who do not see it"
