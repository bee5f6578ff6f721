"""The picture that the examples draw: valid SVG, each bar as long as its process took."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.support.pages import ROOT

SVG = "{http://www.w3.org/2000/svg}"
COLD = {
    "python": 1.0,
    "import torch": 2.0,
    "load the model": 3.0,
    "decode: trace": 4.0,
    "decode: compile ids=2": 9.0,
    "decode: compile ids=4": 9.5,
    "decode: trace, compile, store and load": 14.0,
    "first token": 0.5,
    "launch to first result": 20.5,
    "whole process": 30.0,
}
RELAUNCHED = {
    "python": 1.0,
    "import torch": 2.0,
    "load the model": 3.0,
    "decode: load all gears": 0.05,
    "first token": 0.25,
    "launch to first result": 6.3,
    "whole process": 9.0,
}


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "examples")
    return __import__("timeline")


def test_stages_follow_each_other_and_parallel_compiles_are_one(timeline: ModuleType) -> None:
    found = [(part.name, part.kind, part.seconds) for part in timeline.segments(COLD)]
    assert found == [
        ("start Python", "start", 1.0),
        ("import torch", "start", 2.0),
        ("load the model", "model", 3.0),
        ("decode: trace", "trace", 4.0),
        ("decode: compile, store, load", "compile", 10.0),
        ("first token", "answer", 0.5),
    ]
    assert [part.kind for part in timeline.segments(RELAUNCHED)] == ["start", "start", "model", "gears", "answer"]


def test_the_bars_share_one_axis(timeline: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "timeline.svg"
    timeline.write_timeline(path, "a <title> & more", {"cold": COLD, "relaunched": RELAUNCHED})
    assert str(path) in capsys.readouterr().out
    picture = ElementTree.parse(path).getroot()
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts[0] == "a <title> & more"
    assert {"cold: first result after 20.5 s", "relaunched: first result after 6.3 s"} <= set(texts)
    bars: dict[float, float] = {}
    for part in picture.iter(f"{SVG}rect"):
        if part.get("fill") and float(part.get("height", 0)) == timeline.BAR:
            top, end = float(part.get("y", 0)), float(part.get("x", 0)) + float(part.get("width", 0))
            bars[top] = max(bars.get(top, 0.0), end - timeline.MARGIN)
    cold, relaunched = bars.values()
    assert relaunched / cold == pytest.approx(6.3 / 20.5, abs=0.01)
