"""A call that waits for another compiler of the host says so."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from gearcache.serving.miss.compiles import Compiles
from gearcache.telemetry import wait_line
from tests.support.scenarios import strict_config

LINE = "gearcache: another process or thread of this host compiles `Linear.forward`: waiting for its graphs, "


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_long_wait_is_one_line(
    is_shown: bool, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEARCACHE_PROGRESS", "1" if is_shown else "0")
    monkeypatch.setattr(wait_line, "_SILENT_SECONDS", 0.1)
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
    assert capfd.readouterr().err.count(LINE) == int(is_shown)
