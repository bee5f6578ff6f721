"""What a model is when `generate` is called: other sizes, random numbers and casts that graphs are not for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import gearcache
from gearcache.errors import CaptureError, UnknownGear
from gearcache.integrations.transformers import AttachedModel, attach_generate
from gearcache.integrations.transformers.cache_name import CACHE
from gearcache.integrations.transformers.decoder import DoesNotFit, SlotLayer
from gearcache.integrations.transformers.seq2seq_decoder import EncodedLayer
from tests.support import language_models
from tests.support.language_models import T5_SIZES, language_model, tokens
from tests.support.relaunch import run_python
from tests.support.sampled import sampled

#: Prompts are read token by token, so there is one graph.
SIZES: dict[str, Any] = {"batch": [2], "prompt": [1], "cache_length": 24}
#: How often one graph is called for the 4 tokens of a prompt and 6 new ones, of which the last is not read.
CALLS = 9
#: What a new process prints: tokens and counters at each length of the cache.
RELAUNCHED = """
import json, sys
from pathlib import Path
from tests.integrations.test_model_state import of_length
print(json.dumps([of_length("llama", length, Path(sys.argv[1])) for length in (32, 24)]))
"""


def small(family: str = "llama", **options: Any) -> Any:
    layers = {"num_hidden_layers": 1} if family == "llama" else {}
    return language_model(family, **layers, **options)


def attached_to(model: Any, root: Path, on_miss: str = "eager", **sizes: Any) -> AttachedModel:
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss=on_miss)
    return attach_generate(model, **{**SIZES, **sizes}, config=config, cache_dir=root)


def generated(model: Any, **options: Any) -> Any:
    torch.manual_seed(7)
    return model.generate(**{"input_ids": tokens(2, 4), "max_new_tokens": 6, "do_sample": False, **options})


def of_length(family: str, length: int, root: Path) -> list[Any]:
    """What a model gives that is attached with a length of the cache, and what it costs."""
    model = small(family)
    sizes = {**(T5_SIZES if family == "t5" else SIZES), "cache_length": length}
    attached = attached_to(model, root, "raise", **sizes)
    attached.warm()
    return [generated(model).tolist(), attached.stats.traces]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the graph of `small()` with `SIZES`."""
    root = tmp_path_factory.mktemp("model_state") / "cache"
    attached_to(small(), root).warm()
    return root


@pytest.mark.thorough
def test_each_length_of_the_cache_has_its_entries(tmp_path: Path) -> None:
    """Graphs of one length refuse slots of another, so neither may meet the other's."""
    expected = generated(small()).tolist()
    assert [of_length("llama", length, tmp_path) for length in (24, 32)] == [[expected, 1]] * 2
    assert run_python(RELAUNCHED, str(tmp_path)) == [[expected, 0]] * 2


def test_each_length_of_a_decoders_cache_has_its_entries(t5_entries: Path) -> None:
    expected = generated(small("t5")).tolist()
    assert T5_SIZES["cache_length"] == 24
    assert of_length("t5", 24, t5_entries) == [expected, 0]
    assert of_length("t5", 32, t5_entries) == [expected, 2]  # the encoder has no cache; no other test has this length


def test_a_conversation_goes_on_with_another_length(root: Path) -> None:
    model = small()
    first = attached_to(model, root)
    turn = generated(model, return_dict_in_generate=True)
    first.detach()
    second = attached_to(model, root, cache_length=32)
    ids = torch.cat([turn.sequences, tokens(2, 4, 1)], 1)
    found = generated(model, input_ids=ids, **{CACHE: getattr(turn, CACHE)})
    assert torch.equal(found, generated(small(), input_ids=ids))
    assert list(second.stats.eager_reasons) == [CACHE]
    assert torch.equal(generated(model), generated(small()))  # nothing was published that slots of 32 do not fit
    assert second.stats.calls == second.stats.eager_calls + CALLS


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
    change: Callable[[Any], None], message: str, root: Path
) -> None:
    model = small()
    before = dict(vars(model.config))
    attached = attached_to(model, root, "raise")
    change(model)
    with pytest.raises(UnknownGear, match=f"`config` is changed since `attach_generate`: {message}"):
        generated(model)
    assert attached.stats.calls == 0
    vars(model.config).update(before)
    assert torch.equal(generated(model), generated(small()))
    assert attached.stats.calls == CALLS


def test_autocast_is_left_to_the_model(root: Path) -> None:
    model = small()
    attached = attached_to(model, root)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(generated(model), generated(small()))
    assert (attached.stats.eager_reasons, attached.stats.calls, attached.stats.traces) == ({"autocast": 1}, 1, 0)
    assert torch.equal(generated(model), generated(small()))
    assert (attached.stats.eager_reasons, attached.stats.calls) == ({"autocast": 1}, 1 + CALLS)


@pytest.mark.parametrize("dtype", sampled([torch.bfloat16, torch.float16], [torch.bfloat16]))
def test_models_of_half_the_bits_are_served(dtype: torch.dtype, tmp_path: Path) -> None:
    plain, model = (small().to(dtype) for _ in range(2))
    attached = attached_to(model, tmp_path)
    assert torch.equal(generated(model), generated(plain))
    assert (attached.stats.eager_reasons, attached.stats.calls) == ({}, CALLS)


class Casting(torch.nn.Module):
    """A layer that works in another dtype, as quantized ones do."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer, self.dtype = layer.to(dtype), dtype

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.layer(hidden.to(self.dtype))  # type: ignore[no-any-return]


def casting(dtype: torch.dtype, other: torch.dtype) -> Any:
    model = small().to(dtype)
    attention = model.model.layers[0].self_attn
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(attention, name, Casting(getattr(attention, name), other))
    attention.o_proj = Casting(attention.o_proj, dtype)
    return model


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)], ids=["narrow", "wide"]
)
def test_keys_of_another_dtype_than_the_weights_are_left_to_the_model(
    dtypes: tuple[torch.dtype, torch.dtype], tmp_path: Path
) -> None:
    plain, model = casting(*dtypes), casting(*dtypes)
    try:
        expected = generated(plain)
    except RuntimeError as error:  # transformers 5.24 casts keys and not values
        pytest.skip(f"transformers itself does not run it: {error}")
    attached = attached_to(model, tmp_path)
    assert torch.equal(generated(model), expected)
    assert list(attached.stats.eager_reasons) == ["dtype"]


def test_a_cache_from_before_a_cast_is_left_to_the_model(tmp_path: Path) -> None:
    """Graphs for it would refuse the caches of all later calls."""
    model = small()
    attached = attached_to(model, tmp_path)
    turn = generated(model, return_dict_in_generate=True)
    model.bfloat16()
    ids = torch.cat([turn.sequences, tokens(2, 2, 1)], 1)
    with pytest.raises(RuntimeError, match="Expected query, key, and value to have the same dtype"):
        generated(model, input_ids=ids, **{CACHE: getattr(turn, CACHE)})
    assert attached.stats.eager_reasons == {CACHE: 1}
    assert torch.equal(generated(model), generated(small().bfloat16()))
    assert attached.stats.calls == 2 * CALLS + 1


def layer_of_dropout(model: Any) -> None:
    """As LoRA puts one in: the model itself is not in training mode."""
    model.model.layers[0].mlp.act_fn = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Dropout(0.5).train())


RANDOM: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "a number of a layer": ("llama", lambda model: model.train(), "model.layers.0.self_attn.attention_dropout` is 0.5"),
    "a layer": ("llama", layer_of_dropout, "mlp.act_fn.1.p` is 0.5 in training mode"),
    "layers left out": ("bart", lambda model: model.train(), "layerdrop` is 0.5"),
    "modules of a T5": ("t5", lambda model: model.train(), "dropout"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "a number of a layer": {"attention_dropout": 0.5},
    "layers left out": {"decoder_layerdrop": 0.5, "dropout": 0.0, "attention_dropout": 0.0},
}


@pytest.mark.parametrize("name", RANDOM)
def test_active_dropout_is_left_to_the_model(name: str, tmp_path: Path) -> None:
    family, change, message = RANDOM[name]
    plain, model = (small(family, **OPTIONS.get(name, {})) for _ in range(2))
    without = generated(plain)
    change(plain)
    attached = attached_to(model, tmp_path)
    raising = attached_to(small(family, **OPTIONS.get(name, {})), tmp_path, "raise")
    change(model)
    change(raising.model)
    assert torch.equal(generated(model), generated(plain))
    assert not torch.equal(generated(plain), without)
    assert attached.stats.eager_reasons == {"dropout": 1}
    with pytest.raises(UnknownGear, match=message):
        generated(raising.model)


def test_training_mode_without_dropout_is_served(tmp_path: Path) -> None:
    model = small().train()
    attached = attached_to(model, tmp_path, "raise")
    assert torch.equal(generated(model), generated(small()))
    assert attached.stats.calls == CALLS


_FALCON = {"alibi": False, "new_decoder_architecture": False, "num_key_value_heads": None}
_FLASH = {"num_key_value_heads": 2, "head_dim": 8, "v_head_dim": 4}
#: Models whose config tells other sizes of keys or values than their layers make: heads of both, or widths of values.
OTHER_SIZES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "falcon": ("FalconForCausalLM", "FalconConfig", {**_FALCON, "multi_query": True}),
    "mimo": ("MiMoV2FlashForCausalLM", "MiMoV2FlashConfig", _FLASH),
}


@pytest.mark.parametrize("name", sampled(OTHER_SIZES, ["falcon"]))  # each size by itself: the test of slots below
def test_keys_of_other_sizes_than_the_config_tells_are_left_to_the_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(language_models.FAMILIES, name, OTHER_SIZES[name])
    plain, model = (language_model(name) for _ in range(2))
    attached = attached_to(model, tmp_path)
    assert torch.equal(generated(model), generated(plain))
    traces = attached.stats.traces
    assert torch.equal(generated(model), generated(plain))
    assert list(attached.stats.eager_reasons) == ["sizes"]
    told = [record.getMessage() for record in caplog.records if "runs without graphs" in record.getMessage()]
    assert [text.split("`")[3] for text in told] == ["sizes"]
    assert "by the config" in told[0]
    assert attached.stats.traces == traces  # not anew at each `generate`
    with pytest.raises(CaptureError, match="DoesNotFit"):
        attached.warm()


@pytest.mark.parametrize("kind", [SlotLayer, functools.partial(EncodedLayer, is_read=False)])
@pytest.mark.parametrize("dim", range(4))
def test_a_slot_takes_no_keys_of_another_size(kind: Any, dim: int) -> None:
    """Each dim, also those that a copy would spread out."""
    tokens = torch.arange(6) if kind is not SlotLayer else torch.arange(2)
    keys = torch.zeros(2, 3, 6, 4)
    layer = SlotLayer(keys, keys.clone(), tokens) if kind is SlotLayer else kind(keys, keys.clone())
    good = torch.ones(2, 3, len(tokens), 4)
    layer.update(good, good)
    with pytest.raises(DoesNotFit, match="of keys and values"):
        layer.update(good, good.narrow(dim, 0, 1))
    with pytest.raises(DoesNotFit, match="of keys and values"):
        layer.update(good[0], good)
