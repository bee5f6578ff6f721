"""What a model is when `generate` is called: other sizes, random numbers and casts that graphs are not for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gearcache.errors import UnknownGear
from tests.support.language_models import CACHE, language_model, needs_transformers, tokens

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

    Attach = Callable[..., AttachedModel]

pytestmark = needs_transformers

#: How often graphs are called for the prompt, and for 6 new tokens of which the last is not read.
CALLS = 6


def generated(model: Any, **options: Any) -> Any:
    torch.manual_seed(7)
    return model.generate(**{"input_ids": tokens(2, 4), "max_new_tokens": 6, "do_sample": False, **options})


def heads(model: Any) -> None:
    model.config.num_key_value_heads = 4


def attention(model: Any) -> None:
    model.config._attn_implementation = "flex_attention"


CHANGES: list[tuple[Callable[[Any], None], str]] = [
    (heads, "other sizes of keys and values"),
    (attention, "its attn_implementation is 'flex_attention'"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_config_that_is_edited_leaves_calls_to_the_model(
    change: Callable[[Any], None], message: str, attach: Attach
) -> None:
    model = language_model("mistral")
    before = dict(vars(model.config))
    attached = attach(model, "raise")
    change(model)
    with pytest.raises(UnknownGear, match=f"`config` is changed since `attach_generate`: {message}"):
        generated(model)
    assert attached.stats.calls == 0
    vars(model.config).update(before)
    assert torch.equal(generated(model), generated(language_model("mistral")))
    assert attached.stats.calls == CALLS


def test_autocast_is_left_to_the_model(attach: Attach) -> None:
    model = language_model("mistral")
    attached = attach(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(generated(model), generated(language_model("mistral")))
    assert (attached.stats.eager_reasons, attached.stats.calls, attached.stats.traces) == ({"autocast": 1}, 1, 0)
    assert torch.equal(generated(model), generated(language_model("mistral")))
    assert (attached.stats.eager_reasons, attached.stats.calls) == ({"autocast": 1}, 1 + CALLS)


def test_a_cache_of_another_length_is_left_to_the_model(attach: Attach) -> None:
    model = language_model("mistral")
    first = attach(model)
    turn = generated(model, return_dict_in_generate=True)
    first.detach()
    second = attach(model, cache_length=32)
    ids = torch.cat([turn.sequences, tokens(2, 4, 1)], 1)
    found = generated(model, input_ids=ids, **{CACHE: getattr(turn, CACHE)})
    assert torch.equal(found, generated(language_model("mistral"), input_ids=ids))
    assert list(second.stats.eager_reasons) == [CACHE]
    assert second.stats.calls == second.stats.eager_calls


def layer_of_dropout(model: Any) -> None:
    """As LoRA puts one in: the model itself is not in training mode."""
    model.model.layers[0].mlp.act_fn = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Dropout(0.5).train())


TRAINING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "all": (lambda model: model.train(), "`training` is on in `LlamaForCausalLM`"),
    "a layer": (layer_of_dropout, r"`training` is on in `model\.layers\.0\.mlp\.act_fn`"),
}


@pytest.mark.parametrize("name", TRAINING)
def test_a_model_in_training_mode_is_left_to_itself(name: str, attach: Attach) -> None:
    change, message = TRAINING[name]
    plain, model, other = (language_model("llama", attention_dropout=0.5) for _ in range(3))
    without = generated(plain)
    change(plain)
    attached, raising = attach(model), attach(other, "raise")
    change(model)
    change(other)
    assert torch.equal(generated(model), generated(plain))
    assert not torch.equal(generated(plain), without)
    assert attached.stats.eager_reasons == {"training": 1}
    with pytest.raises(UnknownGear, match=message):
        generated(raising.model)


@pytest.mark.parametrize("kind", ["slots", "encoded"])
def test_a_slot_takes_no_keys_of_another_size_or_dtype(kind: str) -> None:
    """Each dim, also those that a copy would spread out, and a dtype that a copy would round."""
    from gearcache.integrations.transformers.decoder import DoesNotFit, SlotLayer
    from gearcache.integrations.transformers.seq2seq_decoder import EncodedLayer

    keys = torch.zeros(2, 3, 6, 4)
    layer: Any = EncodedLayer(keys, keys.clone(), is_read=False)
    if kind == "slots":
        layer = SlotLayer(keys, keys.clone(), torch.arange(2))
    good = torch.ones(2, 3, 2 if kind == "slots" else 6, 4)
    layer.update(good, good)
    for other in (*(good.narrow(dim, 0, 1) for dim in range(4)), good[0], good.double()):
        with pytest.raises(DoesNotFit, match="of keys and values"):
            layer.update(good, other)
