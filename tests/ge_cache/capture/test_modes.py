"""Grad mode, `no_grad` and `inference_mode` on the compiling and on the serving side, in every pairing.

Each entry is compiled under one mode, with weights and inputs made inside or outside of inference mode, and then serves
every mode and kind of input: in the process that compiled it, and in a fresh one with weights of both kinds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.scenarios.modes import ASKING, METHODS, MODES, SIDES, Asking, made
from tests.support.modes import Case, cases, order_of, serve
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


@dataclass
class Served:
    """Reports by case, of the compiling process and of the relaunched one."""

    cold: dict[Case, dict[str, Any]]
    warm: dict[Case, dict[str, Any]]
    imported: list[str]


def _served(cases: list[Case], root: Path, compiles: bool = False) -> Served:
    """What each case gives here and in a new process, except where all of its calls were refused here."""
    cold = {case: serve(case, str(root), relaunched=False) for case in cases}
    again = [case for case in cases if cold[case]["right"]]
    order = order_of(again, root)
    relaunched = run_python("from tests.support.modes import child; child()", order, compiles=compiles)
    return Served(cold, dict(zip(again, relaunched["reports"], strict=True)), relaunched["imported"])


def _assert_right(served: Served, method: str) -> None:
    for case in (case for case in served.cold if case.method == method):
        cold, warm = served.cold[case], served.warm[case]
        assert cold["differences"] == [], case
        assert warm["differences"] == [], case
        assert (cold["entries"], warm["entries"]) == (1, 1), case
        assert cold["traces"] == cold["traces of the first call"], case
        assert (warm["traces"], warm["misses"]) == (0, 0), case


def test_one_entry_serves_every_mode_as_eager_does_without_another_trace(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """One test, as the next one: each process that has one of several would serve all."""
    writing = {"writes", "step", "counts", "returns what it writes"}
    served = _served(cases(list(METHODS), {"step"}), tmp_path)
    for method in METHODS:
        with subtests.test(method):
            _assert_right(served, method)
    assert served.imported == [], "compilers, for a relaunched call"
    # Inference tensors are refused where they are written outside of inference mode.
    cold, warm = (
        {case.method for case, report in reports.items() if report["refusals"]}
        for reports in (served.cold, served.warm)
    )
    assert cold <= warm == writing
    assert "writes" in cold


def test_what_a_method_asks_and_sets_of_the_modes_is_right_or_refused(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    # The new process traces what is refused.
    asking = _served(cases(list(ASKING)), tmp_path, compiles=True)
    traces = {}
    for case, cold in asking.cold.items():
        traces[case.method] = cold["traces"]
        with subtests.test(case.method):
            assert cold["differences"] == [], case
            if ASKING[case.method].refusal:
                assert cold["refusals"] > 0
            else:
                assert cold["right"] > 0
        if cold["right"]:
            with subtests.test(f"{case.method}, relaunched"):
                warm = asking.warm[case]
                assert warm["differences"] == [], case
                if not ASKING[case.method].refusal:
                    assert (warm["traces"], warm["misses"], warm["entries"]) == (0, 0, 1), case
    # What asks is traced twice, and keeps a variant for each answer that differs.
    assert traces["asks_without"] == traces["sets_and_resets"] == 2
    assert traces["asks"] == 3
    assert traces["decorated_asks"] == traces["inside"] == 1


def test_a_call_without_autograd_is_traced_for_its_own_mode_alone(cache_dir: Path) -> None:
    model = Asking()
    cached = gearcache.cache_compile(model.asks_without, config=strict_config())
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert torch.equal(cached(x), model.asks_without(x))
    assert cached.stats.traces == 1


class Model(Asking):
    def __init__(self) -> None:
        super().__init__()
        self.cached = gearcache.cache_compile(self.decorated_writes, config=strict_config())


@pytest.mark.parametrize(("mode", "weights", "inputs"), list(itertools.product(MODES, SIDES, SIDES))[::6])
def test_what_is_prewarmed_under_one_mode_serves_every_mode(
    cache_dir: Path, mode: str, weights: str, inputs: str
) -> None:
    def build() -> None:
        with torch.device("meta"):
            model = made(weights, Model)
            x = made(inputs, lambda: torch.empty(2, 4))
        with MODES[mode]():
            model.cached.warm(x)
            assert made(inputs, lambda: model.cached(x)).is_meta

    report = gearcache.prewarm(build)
    assert [(len(entry.compiled), entry.failed) for entry in report.entries] == [(1, {})]
    for serving, side, kind in itertools.product(MODES, SIDES, SIDES):
        model, reference = (made(side, Model) for _ in range(2))
        x = made(kind, lambda: torch.ones(2, 4))
        with MODES[serving]():
            assert torch.equal(model.cached(x.clone()), reference.decorated_writes(x.clone()))
        assert (model.cached.stats.traces, model.cached.stats.misses) == (0, 0)


class Decorated(Asking):
    @torch.enable_grad()
    def enabled(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @torch.autograd.set_multithreading_enabled(False)
    def of_another_kind(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @torch.inference_mode()
    @torch.no_grad()
    def doubly_off(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("enabled", "turns autograd on"),
        ("of_another_kind", "set_multithreading_enabled"),
    ],
)
def test_a_decorator_that_no_cached_call_can_honour_is_refused_at_once(method: str, words: str) -> None:
    with pytest.raises(gearcache.CaptureError, match=words):
        gearcache.cache_compile(getattr(Decorated(), method))


def test_the_decorator_is_in_the_key_and_counts_from_the_outside_in(cache_dir: Path) -> None:
    model, x = Decorated(), torch.ones(2, 4)
    plain = Decorated.doubly_off.__wrapped__.__wrapped__
    paths = []
    for method in (model.doubly_off, torch.no_grad()(plain).__get__(model), plain.__get__(model)):
        cached = gearcache.cache_compile(method, config=strict_config())
        assert cached(x).is_inference() == method(x).is_inference()
        paths.append(cached.entry_path)
    assert len(set(paths)) == 3


class Rotary(torch.nn.Module):
    """As rotary embeddings do: one part of it keeps its precision whatever autocast is around."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3, 3), 0.3331))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", enabled=False):
            kept = x.float() @ self.weight
        return kept, x @ self.weight


def test_a_region_without_autocast_keeps_its_precision_under_that_of_the_caller(cache_dir: Path) -> None:
    net, x = Rotary(), torch.ones(1, 3)
    for _ in range(2):
        cached = gearcache.cache_compile(net.forward, config=strict_config())
        for context in (torch.autocast("cpu"), torch.autocast("cpu", enabled=False)):
            with torch.no_grad(), context:
                for found, expected in zip(cached(x), net(x), strict=True):
                    assert found.dtype == expected.dtype
                    torch.testing.assert_close(found, expected, rtol=0, atol=0)
