"""`generate` of an attached encoder-decoder gives what plain `generate` gives, its encoder from graphs too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import gearcache
from gearcache.errors import UnknownGear, UnsupportedMethod
from tests.support.language_models import (
    T5_SIZES,
    attach_generate,
    language_model,
    left_padded,
    needs_transformers,
    right_padded,
    tokens,
)

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

pytestmark = needs_transformers

SERVED: dict[str, dict[str, Any]] = {
    "padding on the right": {"input_ids": tokens(3, 9), "attention_mask": right_padded(3, 9)},
    "beams": {"input_ids": tokens(2, 9), "num_beams": 2},
    "words to begin with": {"input_ids": tokens(2, 7), "decoder_input_ids": tokens(2, 4, 3)},
}
#: Calls of which the model itself serves the decoder, the encoder, or both; and the argument that is why.
UNSERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "a batch above all sizes": ("input_ids", {"input_ids": tokens(5, 7)}),
    "past the last slot": ("max_length", {"input_ids": tokens(1, 5), "min_new_tokens": 30, "max_new_tokens": 30}),
    "a mask of the decoder": (
        "decoder_attention_mask",
        {"decoder_input_ids": tokens(2, 4), "input_ids": tokens(2, 5), "decoder_attention_mask": left_padded(2, 4)},
    ),
}


def generated(model: Any, **arguments: Any) -> list[Any]:
    torch.manual_seed(7)
    found = model.generate(**{"max_new_tokens": 10, "do_sample": False, **arguments})
    return found.tolist()  # type: ignore[no-any-return]


def attached_to(model: Any, root: Path, on_miss: str = "eager") -> AttachedModel:
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss=on_miss)
    return attach_generate(model, **T5_SIZES, config=config, cache_dir=root)


@pytest.fixture
def attached(t5_entries: Path) -> Iterator[AttachedModel]:
    found = attached_to(language_model("t5"), t5_entries)
    yield found
    assert found.stats.traces == 0, found.explain()


@pytest.mark.parametrize("name", SERVED)
def test_served_calls_give_what_plain_generate_gives(attached: AttachedModel, name: str) -> None:
    assert generated(attached.model, **SERVED[name]) == generated(language_model("t5"), **SERVED[name])
    assert attached.stats.eager_reasons == {}
    assert all(method.stats.calls for method in attached.methods.values())


@pytest.mark.parametrize("name", UNSERVED)
def test_unserved_calls_run_without_graphs_or_raise(attached: AttachedModel, t5_entries: Path, name: str) -> None:
    argument, call = UNSERVED[name]
    assert generated(attached.model, **call) == generated(language_model("t5"), **call)
    assert set(attached.stats.eager_reasons) == {argument}
    with pytest.raises(UnknownGear, match=f"argument `{argument}` is "):
        generated(attached_to(language_model("t5"), t5_entries, "raise").model, **call)


def test_detach_restores_model_and_encoder(t5_entries: Path) -> None:
    model = language_model("t5")
    before = dict(vars(model)), dict(vars(model.encoder))
    attached = attached_to(model, t5_entries)
    assert vars(model.encoder) != before[1]
    hidden = model.encoder(tokens(9, 30)).last_hidden_state  # outside of `generate`
    attached.detach()
    assert (vars(model), vars(model.encoder)) == before
    assert torch.equal(model.encoder(tokens(9, 30)).last_hidden_state, hidden)


def test_encoders_that_were_not_tried_are_refused() -> None:
    model = language_model("t5")
    model.config.model_type = "bigbird_pegasus"
    with pytest.raises(UnsupportedMethod, match=r"served are: bart, .*, umt5; this is a bigbird_pegasus"):
        attach_generate(model)
