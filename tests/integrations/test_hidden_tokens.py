"""Masks with which a token sees nothing: attention is even over all slots then, so the model itself answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import gearcache
from gearcache.integrations.transformers import AttachedModel, attach_generate
from tests.support.language_models import language_model, right_padded, tokens

#: An empty text in a batch.
EMPTY_ROW = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
#: A row whose last tokens are hidden; all that it sees are ten tokens before the last one.
FAR = (torch.arange(12)[None] < torch.tensor([[2], [12]])).long()


def attached_to(model: Any, root: Path) -> AttachedModel:
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    return attach_generate(model, batch=[2], prompt=[12], cache_length=24, config=config, cache_dir=root)


def generated(model: Any, mask: torch.Tensor) -> list[Any]:
    ids = tokens(*mask.shape)
    found = model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False, eos_token_id=None)
    return found.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bart", "t5"])
def test_a_row_that_is_hidden_whole_is_left_to_the_model(family: str, attention: str, tmp_path: Path) -> None:
    plain, model = (language_model(family, attn_implementation=attention) for _ in range(2))
    attached = attached_to(model, tmp_path)
    assert generated(model, EMPTY_ROW) == generated(plain, EMPTY_ROW)
    assert list(attached.stats.eager_reasons) == ["attention_mask"]
    assert (attached.stats.traces, attached.stats.compiles) == (0, 0)


@pytest.mark.parametrize(("family", "reasons"), [("llama", []), ("mistral", ["attention_mask"])])
def test_padding_on_the_right_is_served_where_no_window_ends_before_it(
    family: str, reasons: list[str], tmp_path: Path
) -> None:
    plain, model = (language_model(family, num_hidden_layers=1, attn_implementation="eager") for _ in range(2))
    attached = attached_to(model, tmp_path)
    assert generated(model, FAR) == generated(plain, FAR)
    assert generated(model, FAR.bool()) == generated(plain, FAR.bool())
    assert list(attached.stats.eager_reasons) == reasons
    assert (attached.stats.traces > 0) == (not reasons)


def test_a_mask_of_fractions_is_left_to_the_model(tmp_path: Path) -> None:
    """As ints they would be 0, and hide what the model sees."""
    plain, model = (language_model("llama", num_hidden_layers=1) for _ in range(2))
    attached = attached_to(model, tmp_path)
    mask = right_padded(2, 7) * 0.5
    mask[:, -1] = 1.0
    assert generated(model, mask) == generated(plain, mask)
    assert list(attached.stats.eager_reasons) == ["attention_mask"]
