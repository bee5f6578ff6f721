"""What a method says to loggers is left out of its graphs, and `.explain()` names it; other uses have rows as cases."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.cases.case import Case, text
from tests.support.scenarios import strict_config

log = logging.getLogger("app.layers")
adapter = logging.LoggerAdapter(log, {"request": 1})


class Scaling(logging.Logger):
    def scale(self, x: Any) -> Any:
        self.debug("scaling")
        return x * 3

    @functools.lru_cache(None)  # noqa: B019 - as a library does
    def once(self, *args: Any) -> None:
        self.warning(*args)


scaling: Any = Scaling("app.scaling")


class Net(Case):
    def __init__(self) -> None:
        super().__init__()
        self.log, self.say = log, log.info


#: What is left out, and the body of the method.
LEFT_OUT: dict[str, tuple[list[str], str]] = {
    "texts": (
        [
            "`debug` of the logger `app.layers`",
            "`info` of the logger `app.layers`",
            "`log` of the logger `app.layers`",
            "`Logger.info`",
            "`LoggerAdapter.warning`",
            "`info` of the logger `app.x`",
            "`logging.warning`",
            "`warning` of the logger `app.scaling`",
        ],
        """
            log.debug("shape %s", x.shape)
            log.info(f"sum {x.sum()}")
            self.log.log(30, "x", exc_info=True)
            self.say("x")
            adapter.warning("x")
            logging.getLogger("app.x").info("x")
            logging.warning("x %s", x)
            scaling.once("x")
            return x + 1
        """,
    ),
    "a method that gives something": (["`debug` of the logger `app.scaling`"], "return scaling.scale(x)"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_said_to_loggers_is_left_out_and_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the level is: raised while a graph is loaded, it changes neither the result nor the graph."""
    said, body = LEFT_OUT[name]
    net, twin = text(Net, body)(), text(Net, body)()
    expected = twin.run(torch.ones(3))
    caplog.clear()
    cached, again = (
        gearcache.cache_compile(each.run, cache_dir=tmp_path / "cache", config=strict_config()) for each in (net, net)
    )
    assert torch.equal(cached(torch.ones(3)), expected)
    assert torch.equal(again(torch.ones(3)), expected)
    with caplog.at_level(logging.DEBUG, "app"):
        assert torch.equal(cached(torch.ones(3)), expected)
    assert (cached.stats.traces, again.stats.traces, cached.stats.misses) == (1, 0, 1)
    for method in (cached, again):
        told = method.explain().splitlines()[-1].removeprefix("left out of the graphs: ")
        assert [words for words in said if words not in told] == []
    assert not [record for record in caplog.records if record.name.startswith("app") or record.name == "root"]


def test_a_class_of_loggers_that_speaks_otherwise_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = text(Net, 'return x + (scaling.info("x") or 1)')()
    options: dict[str, Any] = {"cache_dir": tmp_path, "config": strict_config()}
    first = gearcache.cache_compile(net.run, **options)
    assert torch.equal(first(torch.ones(3)), torch.full((3,), 2.0))
    monkeypatch.setattr(Scaling, "info", lambda self, *args: 5, raising=False)
    assert torch.equal(gearcache.cache_compile(net.run, **options)(torch.ones(3)), torch.full((3,), 6.0))
