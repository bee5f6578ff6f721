"""Measures a newcomer's first run of a small model: on an empty host, again in the process, again on the host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from benchmarks._process import ContestantFailed, Outcome, Session
from benchmarks._sample import NO_BUDGET, Budget, Ratio, Sample

SIZES = (1, 2, 4, 8)
#: README's example on an empty host beside `torch.compile`, which has no object to link.
NOT_HALF_AS_LONG_AGAIN = 0.67


class Scaled(torch.nn.Module):
    """README's layer; with another factor it is another graph, which no compiler has in its own cache."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear, self.factor = torch.nn.Linear(64, 64), factor

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer on `x` of shape (n, 64)."""
        return torch.relu(self.linear(x)) * self.factor


def rows(session: Session, model: str) -> list[Ratio]:
    """Return the rows."""
    mine = [_run(session, "ours", number) for number in range(2)]
    theirs: list[Outcome | None] = []
    for number in range(2):
        try:
            theirs.append(_run(session, "compiled", number))
        except ContestantFailed:
            theirs.append(None)

    def row(what: str, number: int, figure: str, *, budget: Budget = NO_BUDGET) -> Ratio:
        peer = theirs[number]
        sample = None if peer is None else Sample.of("torch.compile", [peer.report[figure]], "s")
        return Ratio(
            f"first run, Linear(64, 64), {len(SIZES)} gears: {what}",
            sample,
            Sample.of("ours", [mine[number].report[figure]], "s"),
            budget,
        )

    return [
        row("on an empty host, imports included", 0, "first", budget=Budget(NOT_HALF_AS_LONG_AGAIN)),
        row("another method in the process", 0, "second"),
        row("another process on the host, imports included", 1, "first"),
    ]


def _run(session: Session, contestant: str, number: int) -> Outcome:
    order = {"cache_dir": str(session.folder / f"first{number}"), "factors": [2.0 + number, 4.0 + number]}
    # The second process finds what the first one's compiler has left on the host, but no entry.
    return session.run(
        f"Linear, {contestant}, process {number + 1}",
        f"benchmarks.first:{contestant}",
        order,
        home=f"{contestant} first",
    )


def ours(order: dict[str, Any]) -> dict[str, Any]:
    """gearcache."""

    def made(layer: Scaled) -> Any:
        import gearcache

        config = gearcache.CompilerConfig(backend="inductor", strict=True)
        gears = {"x": {0: list(SIZES)}}
        return gearcache.cache_compile(layer.decode, gears=gears, config=config, cache_dir=Path(order["cache_dir"]))

    return _timed(order, made)


def compiled(order: dict[str, Any]) -> dict[str, Any]:
    """`torch.compile`, one static graph per size."""
    return _timed(order, lambda layer: torch.compile(layer.decode, dynamic=False, fullgraph=True))


def _timed(order: dict[str, Any], made: Any) -> dict[str, Any]:
    found = {}
    for name, factor in zip(("first", "second"), order["factors"], strict=True):
        layer, calls = Scaled(factor), [torch.randn(size, 64) for size in SIZES]
        with torch.no_grad():
            begin = time.perf_counter()
            method = made(layer)
            results = [method(x) for x in calls]
            found[name] = time.perf_counter() - begin
            for x, result in zip(calls, results, strict=True):
                torch.testing.assert_close(result, layer.decode(x))
    return found
