"""Attached modules of torch and transformers give what eager gives, cold and in a process that traces nothing."""

from __future__ import annotations

import pytest

from tests.support.relaunch import Outcome, cold_and_warm

MODULE = "tests.scenarios.attached"
pytestmark = pytest.mark.slow
#: `test_plain_generate` generates as well, and `layers_of_a_bert` has the decorators of a BERT.
KEPT = ("a_convolutional_net", "an_encoder_of_torch", "sentence_vectors", "layers_of_a_bert", "layers_of_a_llama")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return cold_and_warm(MODULE, tmp_path_factory.mktemp("attached"), tolerance=1e-6, kept=KEPT)


def test_batches_of_images(outcome: Outcome) -> None:
    outcome.assert_right("a_convolutional_net")


def test_an_encoder_of_torch(outcome: Outcome) -> None:
    outcome.assert_right("an_encoder_of_torch")


@pytest.mark.thorough
def test_a_forward_behind_decorators(outcome: Outcome) -> None:
    outcome.assert_right("a_bert")


def test_a_dictionary_of_features(outcome: Outcome) -> None:
    outcome.assert_right("sentence_vectors", traces=1)


@pytest.mark.thorough
def test_generate(outcome: Outcome) -> None:
    outcome.assert_right("generate", traces=3)


def test_equal_layers(outcome: Outcome) -> None:
    outcome.assert_right("layers_of_a_bert", traces=1)


def test_layers_that_read_their_number(outcome: Outcome) -> None:
    outcome.assert_right("layers_of_a_llama", traces=4)
