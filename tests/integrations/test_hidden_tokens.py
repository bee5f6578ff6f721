"""Masks with which a token sees nothing: attention is even over all slots then, so the model itself answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.language_models import language_model, needs_transformers, right_padded, tokens

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

    Attach = Callable[..., AttachedModel]

pytestmark = needs_transformers

#: An empty text in a batch.
EMPTY_ROW = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
#: A row whose last tokens are hidden; all that it sees are ten tokens before the last one.
FAR = (torch.arange(12)[None] < torch.tensor([[2], [12]])).long()


def generated(model: Any, mask: torch.Tensor) -> list[Any]:
    ids = tokens(*mask.shape)
    found = model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False, eos_token_id=None)
    return found.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("family", "attention"), [("llama", "eager"), ("t5", "sdpa")])
def test_a_row_that_is_hidden_whole_is_left_to_the_model(family: str, attention: str, attach: Attach) -> None:
    plain, model = (language_model(family, attn_implementation=attention) for _ in range(2))
    attached = attach(model)
    assert generated(model, EMPTY_ROW) == generated(plain, EMPTY_ROW)
    assert list(attached.stats.eager_reasons) == ["attention_mask"]
    assert (attached.stats.traces, attached.stats.compiles) == (0, 0)


def test_padding_on_the_right_of_a_window_is_left_to_the_model(attach: Attach) -> None:
    plain, model = language_model("mistral"), language_model("mistral")
    attached = attach(model)
    assert generated(model, FAR) == generated(plain, FAR)
    assert generated(model, FAR.bool()) == generated(plain, FAR.bool())
    assert list(attached.stats.eager_reasons) == ["attention_mask"]
    assert attached.stats.hits == 0


def test_a_mask_of_fractions_is_left_to_the_model(attach: Attach) -> None:
    """As ints they would be 0, and hide what the model sees."""
    plain, model = (language_model("llama", num_hidden_layers=1) for _ in range(2))
    attached = attach(model)
    mask = right_padded(2, 7) * 0.5
    mask[:, -1] = 1.0
    assert generated(model, mask) == generated(plain, mask)
    assert list(attached.stats.eager_reasons) == ["attention_mask"]
