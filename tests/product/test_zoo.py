"""Hugging Face models, cold and relaunched: what eager gives; encoders bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.relaunch import Outcome, cold_and_warm, relaunch
from tests.support.sampled import sampled

pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
#: Tests of integrations have the others.
KEPT = ("gemma", "mixtral", "whisper_decoder", "vit")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return cold_and_warm("tests.scenarios.zoo", tmp_path_factory.mktemp("zoo"), kept=KEPT)


@pytest.mark.parametrize("model", sampled(["llama", "qwen2", "gemma", "mixtral"], KEPT))
def test_prefill_and_decode_are_eager_s(outcome: Outcome, model: str) -> None:
    outcome.assert_right(model)


@pytest.mark.parametrize("model", sampled(["whisper_decoder", "bert", "vit"], KEPT))
def test_encoders_and_cross_attention_are_eager_s(outcome: Outcome, model: str) -> None:
    outcome.assert_right(model)


@pytest.mark.thorough
def test_a_compiled_decode_step_is_eager_s(tmp_path: Path) -> None:
    for traces in (1, 0):  # both in fresh processes: transformers keeps a registry of the models that were run
        reports = relaunch("tests.scenarios.llama_compiled", ["decode"], tmp_path, backend="inductor", tolerance=1e-4)
        report = reports["decode"]
        assert report["error"] is None, report["error"]
        assert report["checks"]
        assert all(check["equal"] for check in report["checks"].values())
        assert [stats["traces"] for stats in report["stats"]] == [traces]
