"""Each family of language models generates, cold and relaunched, what plain `generate` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.support.language_models import (
    ENCODER_DECODERS,
    FAMILIES,
    attach_generate,
    language_model,
    left_padded,
    needs_transformers,
    tokens,
)
from tests.support.relaunch import run_python

pytestmark = needs_transformers

#: Each prompt is longer than the sliding windows, by itself or by what is generated. A decoder reads it in pieces.
CALLS = (
    {"input_ids": tokens(1, 5)},
    {"input_ids": tokens(2, 7), "attention_mask": left_padded(2, 7)},
    {"input_ids": tokens(2, 19, 1), "do_sample": True},
)
#: Of encoder-decoders, one of each way to make positions; the others were tried by hand (docs/transformers.md).
TRIED = (*FAMILIES, "bart", "m2m_100", "mt5")
#: What a new process runs for all families.
RELAUNCHED = """
import json, sys
from pathlib import Path
from tests.integrations.test_families import TRIED, served
print(json.dumps({family: served(family, Path(sys.argv[1])) for family in TRIED}))
"""


def texts(model: Any) -> list[Any]:
    found = []
    for call in CALLS:
        torch.manual_seed(7)
        found.append(model.generate(**{"max_new_tokens": 10, "do_sample": False, **call}).tolist())
    return found


def served(family: str, root: Path) -> dict[str, Any]:
    """What an attached model of a family gives, and what its graphs cost."""
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss="raise")
    sizes: dict[str, Any] = {"batch": [2], "prompt": [20] if family in ENCODER_DECODERS else [8], "cache_length": 48}
    attached = attach_generate(language_model(family), **sizes, config=config, cache_dir=root)
    return {"texts": texts(attached.model), "traces": attached.stats.traces, "compiles": attached.stats.compiles}


@pytest.mark.slow
@pytest.mark.thorough  # `test_generate` has a Mistral and a T5, `test_attaching_models` a Llama
def test_every_family_gives_what_plain_generate_gives(tmp_path: Path) -> None:
    expected = {family: texts(language_model(family)) for family in TRIED}
    assert len({json.dumps(texts) for texts in expected.values()}) == len(TRIED)
    cold = {family: served(family, tmp_path) for family in TRIED}
    costs = {family: 3 if family in ENCODER_DECODERS else 2 for family in TRIED}
    assert cold == {
        family: {"texts": expected[family], "traces": costs[family], "compiles": costs[family]} for family in TRIED
    }
    relaunched = run_python(RELAUNCHED, str(tmp_path))
    assert relaunched == {family: {"texts": expected[family], "traces": 0, "compiles": 0} for family in TRIED}
