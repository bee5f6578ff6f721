"""A Hugging Face decode step: the gear is named on the ids, the caches follow."""

from __future__ import annotations

import pytest

from tests.support.relaunch import cold_and_warm

pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.thorough  # the models of `test_zoo` have such caches
@pytest.mark.filterwarnings("default")
def test_a_decode_step_with_a_static_cache_is_eager_s(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Other models of the compiling process, which the relaunched one does not have, change nothing: transformers
    # registers the class of every model in one dictionary, from which the trace of a model reads its own entry.
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=8, **sizes))
    outcome = cold_and_warm("tests.scenarios.llama", tmp_path_factory.mktemp("llama"), tolerance=1e-6)
    outcome.assert_right("decode_with_static_cache")
