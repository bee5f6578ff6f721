"""Measures two hosts with separate homes and one Redis: one compiles, the other fetches; beside torch's Redis cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import relaunch
from benchmarks._process import ContestantFailed, Outcome, Session
from benchmarks._sample import Budget, Ratio, Sample

#: How many times faster a fetching host answers than one that fetches from torch's cache.
TIMES_SOONER = 10.0


def rows(session: Session, model: str) -> list[Ratio]:
    """Return the rows of one model."""
    with _redis() as url:
        mine = [_ours(session, model, host, url) for host in ("A", "B")]
        theirs: list[Outcome] | None = None
        try:
            theirs = [_compiled(session, model, host, url) for host in ("A", "B")]
        except ContestantFailed as error:
            print(f"benchmarks: torch's Redis cache failed: {error}")
    label = f"hosts {model}, {len(relaunch.BATCHES)} gears"
    fetched = mine[1].report
    if fetched["tokens"] != mine[0].report["tokens"]:
        raise RuntimeError("the second host gives other tokens than the first one")
    second = Sample.of("ours", [fetched["seconds"]], "s")
    return [
        Ratio(
            f"{label}: the second host, beside torch.compile with its Redis cache",
            None if theirs is None else Sample.of("torch.compile", [theirs[1].report["seconds"]], "s"),
            second,
            Budget(ratio_at_least=TIMES_SOONER),
        ),
        Ratio(f"{label}: … beside the first host, which compiles", _seconds("ours, compiling", mine[0]), second),
        Ratio(
            f"{label}: the first host, which compiles and sends",
            None if theirs is None else _seconds("torch.compile", theirs[0]),
            _seconds("ours", mine[0]),
        ),
        Ratio(
            f"{label}: of the second host, load with the fetch in it", None, Sample.of("ours", [fetched["load"]], "s")
        ),
    ]


def _seconds(name: str, outcome: Outcome) -> Sample:
    return Sample.of(name, [outcome.report["seconds"]], "s")


def _ours(session: Session, model: str, host: str, url: str) -> Outcome:
    home = f"host {host}"
    order = {
        **relaunch._order(model, relaunch.BATCHES),
        "cache_dir": str(session.folder / f"gearcache {host}"),
        "options": {},
        "backend": session.options.backend,
        "relaunch": False,
    }
    with _environ(GEARCACHE_REMOTES=f"{url}?unsigned=1"):
        name = f"ours on host {host}, {model}"
        outcome = session.run(name, "benchmarks.contestants:ours", order, home=home)
    if host == "B" and outcome.report["compiles"]:
        raise RuntimeError("the second host has compiled")
    return outcome


def _compiled(session: Session, model: str, host: str, url: str) -> Outcome:
    order = relaunch._order(model, relaunch.BATCHES)
    with _environ(
        TORCHINDUCTOR_REDIS_URL=url,
        TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE="1",
        TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE="1",
    ):
        name = f"torch.compile on host {host}, {model}"
        return session.run(name, "benchmarks.contestants:compiled", order, home=f"torch's host {host}")


@contextmanager
def _environ(**variables: str) -> Iterator[None]:
    kept: dict[str, Any] = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _redis() -> Iterator[str]:
    from tests.cache.remote.real_engines import ENGINES

    with ENGINES["redis"]() as remote:
        yield remote.label
