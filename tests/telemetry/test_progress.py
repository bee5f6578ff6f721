"""What is written to stderr while gears compile."""

from __future__ import annotations

import io
import logging
import re
import sys
import time

import pytest

from gearcache.telemetry import progress
from gearcache.telemetry.progress import BuildProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stream(monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO] = io.StringIO) -> io.StringIO:
    """Put a stream in the place of stderr, and make builds long after a moment."""
    written = kind()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.05)
    return written


def build(seconds: float) -> None:
    with BuildProgress("Model.encode", 4) as building:
        building.update("a", "compile")
        time.sleep(seconds)
        building.update("a", "done")


def test_a_long_build_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch)
    build(0.5)
    assert written.getvalue() == ("gearcache: compiling 4 graphs of `Model.encode`, which the next process will load\n")


def test_a_short_build_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch)
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.4)
    build(0.0)
    time.sleep(0.6)
    assert written.getvalue() == ""


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_variable_turns_it_off(kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch, kind)
    monkeypatch.setenv("GEARCACHE_PROGRESS", "0")
    build(0.3)
    assert written.getvalue() == ""


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_a_terminal_gets_a_bar_that_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch, Terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with BuildProgress("LlamaForCausalLM.forward", 4) as building:
        building.update("kwargs['input_ids'](1, 1), kwargs['past_key_values'].layers[0].keys(1, 2, 16, 64)", "compile")
        building.update("b", "compile")
        building.update("b", "done")
    last = written.getvalue()
    assert "LlamaForCausalLM.forward" in last
    assert "1/4" in last
    assert ("keys(1, 2, 16, 64): compile" in last) == (columns == 160)


def test_without_a_standard_error_a_build_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    build(0.0)


def test_seconds_are_those_of_the_gear(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gearcache"), BuildProgress("Model.encode", 2) as building:
        building.update("late", "wait")
        building.update("early", "compile")
        time.sleep(0.3)
        building.update("early", "done")
        building.update("late", "compile")
        building.update("late", "done")
    early, late = caplog.messages
    assert re.fullmatch(r"Model.encode: gear early done after 0\.[3-9] s \(1 of 2\)", early)
    assert re.fullmatch(r"Model.encode: gear late done after 0\.[01] s \(2 of 2\)", late)
