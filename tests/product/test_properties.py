"""Random modules, gear specs and calls: cold, relaunched and eager results are the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.scenarios.programs import STEPS, run_example
from tests.support import sampled
from tests.support.relaunch import run_python

CHILD = """
import json, sys
from pathlib import Path
from tests.scenarios.programs import run_examples
print(json.dumps(run_examples(json.loads(Path(sys.argv[1]).read_text()))))
"""
SIZES = st.integers(1, 5)
#: A strided input of a linear layer: `aten::linear` then depends on whether the weight requires grad.
STRIDED = {
    "seed": 0,
    "steps": [("concatenate", -0.5), ("linear", -0.5)],
    "policy": "zip",
    "dynamic": True,
    "gears": {"x": {0: [1, 2]}},
    "calls": [(1, 1, False), (2, 1, False)],
}


@st.composite
def examples(draw: st.DrawFn) -> dict[str, Any]:
    """A program, the shapes that it is compiled for, and calls within and without."""
    steps = draw(
        st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from([-0.5, 0.75, 2.0])), min_size=1, max_size=6)
    )
    kind = draw(st.sampled_from(["batch", "batch and length", "product", "dynamic", "static", "automatic"]))
    batches = draw(st.lists(SIZES, min_size=2, max_size=3, unique=True))
    lengths = draw(st.lists(SIZES, min_size=len(batches), max_size=len(batches), unique=True))
    gears: dict[str, dict[int, list[int]]] = {}
    if kind in ("batch", "batch and length", "product"):
        gears = {"x": {0: batches}}
    if kind in ("batch and length", "product"):
        gears["x"][1] = lengths
    length = draw(SIZES)
    shapes = [(batch, length) for batch in batches]
    if kind == "batch and length":
        shapes = list(zip(batches, lengths, strict=True))
    elif kind != "batch":
        shapes = [(batch, other) for batch in batches for other in lengths[:2]]
    calls = draw(st.lists(st.tuples(st.sampled_from(shapes), st.booleans()), min_size=2, max_size=4))
    return {
        "seed": draw(st.integers(0, 100)),
        "steps": steps,
        "policy": "product" if kind == "product" else "zip",
        "dynamic": {"static": False, "automatic": None}.get(kind, True),
        "gears": gears,
        "calls": [(batch, size, flag) for (batch, size), flag in calls],
    }


def _compare(root: Path, count: int, backend: str, tolerance: float) -> None:
    """Run drawn examples cold, then relaunched within this process, then all of them in a fresh one."""
    drawn: list[dict[str, Any]] = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize="GEARCACHE_FUZZ" not in os.environ,  # set it to draw other examples than last time
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(examples())
    @example(STRIDED)
    def cold(drawn_now: dict[str, Any]) -> None:
        folder = root / str(len(drawn))
        drawn.append(drawn_now)
        found = run_example(drawn_now, folder, backend=backend, tolerance=tolerance)
        assert [line for line in found if not line.startswith("traced")] == []
        assert run_example(drawn_now, folder, backend=backend, tolerance=tolerance) == []

    cold()
    order = root / "order.json"
    order.write_text(json.dumps({"root": str(root), "examples": drawn, "backend": backend, "tolerance": tolerance}))
    relaunched = run_python(CHILD, str(order))
    assert len(relaunched) >= count
    for case, found in zip(drawn, relaunched, strict=True):
        assert found == [], case


@pytest.mark.slow
def test_cold_relaunched_and_eager_are_bit_for_bit_equal(tmp_path: Path) -> None:
    _compare(tmp_path, sampled.examples(24), "eager", 0.0)


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.thorough  # `test_inductor` compares compiled graphs, and the frames about them are those of the test above
@pytest.mark.slow
def test_compiled_graphs_are_equal_within_tolerance(tmp_path: Path) -> None:
    _compare(tmp_path, 3, "inductor", 1e-4)
