"""What is written to stderr while gears compile, and while another process of the host compiles them."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from gearcache.serving.miss.compiles import Compiles
from gearcache.telemetry import progress, progress_bar
from gearcache.telemetry.progress import BuildProgress, WaitLine
from tests.support.scenarios import strict_config


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stream(monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO] = io.StringIO) -> io.StringIO:
    """Put a stream in the place of stderr, and make builds long after a moment."""
    written = kind()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.05)
    return written


class GoneTerminal(Terminal):
    """The terminal of a connection that has ended."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def build(seconds: float, **told: str) -> None:
    with BuildProgress("Model.encode", 4, **told) as building:
        building.update("a", "compile")
        time.sleep(seconds)
        building.update("a", "done")


WHY = "absent: `state.threads` is `2`, stored is `1`"


ALONE = f"gearcache: compiling 4 graphs of `Model.encode`, for this process alone: {WHY}\n"
STORED = f"gearcache: compiling 4 graphs of `Model.encode`, to be stored in `/srv/.torchair_cache`: {WHY}\n"


@pytest.mark.parametrize(
    ("kind", "environ", "place", "line"),
    [
        pytest.param(io.StringIO, {}, "/srv/.torchair_cache", STORED, id="a pipe"),
        pytest.param(Terminal, {"TERM": "dumb"}, "", ALONE, id="a terminal without escapes"),
        pytest.param(io.StringIO, {"GEARCACHE_PROGRESS": "0"}, "", "", id="a pipe, turned off"),
    ],
)
def test_a_long_build_is_told_in_one_line_where_no_bar_can_be_drawn(
    kind: type[io.StringIO], environ: dict[str, str], place: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = stream(monkeypatch, kind)
    for name, value in ({"TERM": "xterm"} | environ).items():
        monkeypatch.setenv(name, value)
    build(0.2, why=WHY, place=place)
    assert written.getvalue() == line


def test_a_short_build_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch)
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.2)
    build(0.0)
    time.sleep(0.3)
    assert written.getvalue() == ""


def screens(text: str) -> list[str]:
    """What stood on the bar's line of a terminal, one after the other."""
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))
    return [line for line in lines if re.search(r" [0-9]+/[0-9]+ [0-9]+:[0-9]+:[0-9]+", line)]


def test_a_terminal_gets_a_line_that_fits_and_says_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch, Terminal)
    monkeypatch.setattr(progress_bar, "_REFRESHES", 20)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    gears = ["kwargs['input_ids'](1, 1), kwargs['past_key_values'].layers[0].keys(1, 2, 16, 64)", "b"]
    with BuildProgress("LlamaForCausalLM.forward", 4, why=WHY, place="/srv") as building:
        building.update(gears[0], "headers")
        time.sleep(0.2)
        building.update(gears[0], "compile")
        time.sleep(0.2)
        building.update("b", "compile")
        building.update("b", "done")
    assert "compiling 4 graphs of `LlamaForCausalLM.forward`" in written.getvalue()
    found = screens(written.getvalue())
    assert all(len(line) <= 60 for line in found)
    assert any("compiling C++" in line for line in found)
    assert any("compiling: 0 s" in line for line in found)
    assert found[-1].startswith("Llama")
    assert " 1/4 " in found[-1]


def test_a_pipe_is_told_from_time_to_time_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch)
    monkeypatch.setattr(progress, "_FIRST_BEAT", 0.1)
    with BuildProgress("Model.encode", 4) as building:
        building.update("a", "compile")
        building.update("b", "compile")
        building.update("b", "done")
        time.sleep(0.45)
    first, *beats = written.getvalue().splitlines()
    assert first.startswith("gearcache: compiling 4 graphs of `Model.encode`")
    assert beats == ["gearcache: `Model.encode`: 1 of 4 done; compiling: 0 s, a"] * 2  # after 0.1 and 0.3 s


WAITS = "gearcache: another process or thread of this host compiles `Linear.forward`: waiting for its graphs, "


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_long_wait_is_one_line(
    is_shown: bool, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEARCACHE_PROGRESS", "1" if is_shown else "0")
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.1)
    compile_, begun = Compiles.compile, threading.Event()

    def slow(*arguments: Any, **keywords: Any) -> Any:
        begun.set()
        time.sleep(0.4)
        return compile_(*arguments, **keywords)

    monkeypatch.setattr(Compiles, "compile", slow)
    module, x = nn.Linear(4, 4), torch.ones(2, 4)
    first, second = (gearcache.cache_compile(module.forward, config=strict_config()) for _ in range(2))
    other = threading.Thread(target=first, args=(x,))
    other.start()
    assert begun.wait(60)
    assert torch.equal(second(x), module(x))
    other.join()
    assert (first.stats.compiles, second.stats.compiles) == (1, 0)
    assert capfd.readouterr().err.count(WAITS) == int(is_shown)


@pytest.mark.parametrize("begin", [lambda: BuildProgress("Model.encode", 4), lambda: WaitLine("Model.encode", 9.0)])
def test_a_signal_handler_that_raises_as_the_display_begins_leaves_nothing_that_tells_of_it_later(
    begin: Callable[[], BuildProgress | WaitLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = stream(monkeypatch)
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.05)
    monkeypatch.setattr(progress, "_FIRST_BEAT", 0.05)
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        if not isinstance(thread, threading.Timer) or isinstance(display, WaitLine):
            raise TimeoutError

    display = begin()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(TimeoutError), display:
        pass
    assert started
    for thread in started:
        thread.join(5)
        assert not thread.is_alive()
    assert written.getvalue() == ""


def test_a_terminal_that_is_gone_costs_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    stream(monkeypatch, GoneTerminal)
    build(0.1)
    stream(monkeypatch, Terminal)
    with BuildProgress("Model.encode", 1) as building:
        assert building._bar is not None
        building._bar.console.file = GoneTerminal()
