"""A server's second request is served, relaunched without a trace, by eager and by compiled graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.relaunch import Outcome, relaunch
from tests.support.scenarios import run_scenario

pytestmark = pytest.mark.slow
_MODULE = "tests.scenarios.varying"
#: What is compiled for real: a slice written and read at an int, and an int in a dict.
_COMPILED = ["a_decode_step_begun_static", "an_int_in_a_dict"]


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.thorough  # `test_inductor` has one that varies, `test_what_varies` all without a compiler
def test_compiled_graphs_take_what_varies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path))
    options = {"backend": "inductor", "tolerance": 1e-5}
    cold = {name: run_scenario(_MODULE, name, tmp_path, **options) for name in _COMPILED}  # type: ignore[arg-type]
    outcome = Outcome(cold, relaunch(_MODULE, _COMPILED, tmp_path, **options))  # type: ignore[arg-type]
    for name in _COMPILED:
        outcome.assert_right(name)
