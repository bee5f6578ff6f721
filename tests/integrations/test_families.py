"""Each family of language models generates, cold and relaunched, what plain `generate` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import gearcache
from gearcache.integrations.transformers import attach_generate
from tests.support.language_models import FAMILIES, language_model, left_padded, tokens
from tests.support.relaunch import run_python
from tests.support.sampled import chosen

SIZES: dict[str, Any] = {"batch": [2], "prompt": [8], "cache_length": 48}
#: Each is longer than the sliding windows, by its prompt or by what is generated.
CALLS = (
    {"input_ids": tokens(1, 5)},
    {"input_ids": tokens(2, 7), "attention_mask": left_padded(2, 7)},
    {"input_ids": tokens(2, 19, 1), "do_sample": True},
)
#: Windows of two kinds, and positions that are learnt; `test_generate` has a Llama.
TRIED = chosen(FAMILIES, ("gpt2", "gemma2"))
#: What a new process runs for all families.
RELAUNCHED = """
import json, sys
from pathlib import Path
from tests.integrations.test_families import served
print(json.dumps({family: served(family, Path(sys.argv[1])) for family in sys.argv[2:]}))
"""


def small(family: str) -> Any:
    """Two layers where a model has two kinds of them."""
    return language_model(family, num_hidden_layers=2 if family == "gemma2" else 1)


def texts(model: Any) -> list[Any]:
    found = []
    for call in CALLS:
        torch.manual_seed(7)
        found.append(model.generate(**{"max_new_tokens": 10, "do_sample": False, **call}).tolist())
    return found


def served(family: str, root: Path) -> dict[str, Any]:
    """What an attached model of a family gives, and what its graphs cost."""
    model = small(family)
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss="raise")
    attached = attach_generate(model, **SIZES, config=config, cache_dir=root)
    found = texts(model)
    return {"texts": found, "traces": attached.stats.traces, "compiles": attached.stats.compiles}


@pytest.mark.slow
@pytest.mark.thorough  # `test_generate` has a Mistral, `test_plain_generate` a Llama
def test_every_family_gives_what_plain_generate_gives(tmp_path: Path) -> None:
    expected = {family: texts(small(family)) for family in TRIED}
    assert len({json.dumps(texts) for texts in expected.values()}) == len(TRIED)
    cold = {family: served(family, tmp_path) for family in TRIED}
    assert cold == {family: {"texts": expected[family], "traces": 2, "compiles": 2} for family in TRIED}
    relaunched = run_python(RELAUNCHED, str(tmp_path), *TRIED)
    assert relaunched == {family: {"texts": expected[family], "traces": 0, "compiles": 0} for family in TRIED}
