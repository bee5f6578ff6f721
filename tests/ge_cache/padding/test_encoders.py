"""Encoders of transformers between gears: `forward` as it is, batch and length."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import GearSpecError, PaddedResultError
from tests.support.sampled import sampled
from tests.support.scenarios import strict_config

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

SMALL: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}
IDS, MASK = "kwargs['input_ids']", "kwargs['attention_mask']"


def _bert(backend: str = "eager", *, masked: bool = True, fill: Any = 0, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**{**SMALL, "num_hidden_layers": 1}, **options)).eval()
    length = gearcache.Symbol("length", gears=[6, 9])
    paths = {IDS: 0, **({MASK: fill} if masked else {})}
    config = strict_config(backend, on_miss="pad", pad_values=paths)
    return model, gearcache.cache_compile(model.forward, config=config, gears={path: {1: length} for path in paths})


def _call(length: int, *, masked: bool = True) -> dict[str, torch.Tensor]:
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length // 2 + 1 :] = 0
    return {"input_ids": torch.randint(2, 60, (2, length)), **({"attention_mask": mask} if masked else {})}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"masked": False}, r"attends over kwargs\['input_ids'\].size\(1\)", id="no mask"),
        pytest.param({"fill": 1}, "with a mask that is not known to be False or -inf", id="a mask filled with 1"),
        pytest.param({"attn_implementation": "eager"}, "gives filling a weight", id="a mask of the least number"),
    ],
)
def test_a_length_without_a_mask_is_refused(cache_dir: Path, options: dict[str, Any], message: str) -> None:
    _, cached = _bert(**options)
    with torch.no_grad(), pytest.raises(GearSpecError, match=message):
        cached(**_call(5, masked=options.get("masked", True)))
    assert cached.stats.compiles == 0


@pytest.mark.parametrize("fill", sampled([math.nan, math.inf], [math.inf]))  # a sum over it is NaN
def test_a_padding_token_without_numbers_is_an_error(cache_dir: Path, fill: float) -> None:
    model, cached = _bert()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[0] = fill
        with pytest.raises(PaddedResultError, match="a result holds NaN"):
            cached(**_call(5))


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.thorough
def test_compiled_encoders_are_padded_too(cache_dir: Path) -> None:
    model, cached = _bert("inductor")
    with torch.no_grad():
        for length in (6, 5, 8, 2, 9):
            call = _call(length)
            found, expected = cached(**call), model(**call)
            for name in ("last_hidden_state", "pooler_output"):
                torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-5)
        model.embeddings.word_embeddings.weight[0] = math.nan
        with pytest.raises(PaddedResultError, match="a result holds NaN"):
            cached(**_call(5))
