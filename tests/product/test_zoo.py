"""A compiled decode step of a Hugging Face model, cold and relaunched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.language_models import needs_transformers
from tests.support.relaunch import order, relaunch

pytestmark = [needs_transformers, pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.mark.thorough  # `test_generate`: without a compiler; `test_inductor`: other methods
def test_a_compiled_decode_step_is_eager_s(tmp_path: Path) -> None:
    for traces in (1, 0):  # both in fresh processes: transformers keeps a registry of the models that were run
        (reports,) = relaunch([order("tests.scenarios.llama", tmp_path, backend="inductor", tolerance=1e-4)])
        report = reports["decode_with_static_cache"]
        assert report["error"] is None, report["error"]
        assert report["checks"]
        assert all(check["equal"] for check in report["checks"].values())
        assert [stats["traces"] for stats in report["stats"]] == [traces]
