"""A Hugging Face decode step: the gear is named on the ids, the caches follow."""

from __future__ import annotations

import pytest

from tests.relaunch import cold_and_warm

pytest.importorskip("transformers")


@pytest.mark.filterwarnings("default")
def test_a_decode_step_with_a_static_cache_is_eager_s(tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = cold_and_warm("tests.models.llama", tmp_path_factory.mktemp("llama"), tolerance=1e-6)
    outcome.assert_right("decode_with_static_cache")
