"""Hugging Face models, cold and relaunched: what eager gives; encoders bit for bit."""

from __future__ import annotations

import pytest

from tests.relaunch import Outcome, cold_and_warm

pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return cold_and_warm("tests.models.zoo", tmp_path_factory.mktemp("zoo"))


@pytest.mark.parametrize("model", ["llama", "qwen2", "gemma", "mixtral"])
def test_prefill_and_decode_are_eager_s(outcome: Outcome, model: str) -> None:
    outcome.assert_right(model)


@pytest.mark.parametrize("model", ["whisper_decoder", "bert", "vit"])
def test_encoders_and_cross_attention_are_eager_s(outcome: Outcome, model: str) -> None:
    outcome.assert_right(model)
