"""Which models of transformers can be attached, with which sizes, and which calls their graphs take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import AlreadyAttached, GearSpecError, OptionError, UnsupportedMethod
from tests.support.language_models import (
    CACHE,
    attach_generate,
    language_model,
    needs_transformers,
    tokens,
)

pytestmark = needs_transformers

CPU = torch.device("cpu")
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}


def with_config(**values: Any) -> Any:
    model = language_model("llama", num_hidden_layers=1)
    for name, value in values.items():
        setattr(model.config, name, value)
    return model


def placed(**attributes: Any) -> Any:
    model = language_model("llama", num_hidden_layers=1)
    vars(model).update(attributes)
    return model


def mamba() -> Any:
    import transformers

    return transformers.MambaForCausalLM(transformers.MambaConfig(vocab_size=97, hidden_size=16, num_hidden_layers=1))


def gemma3_with_images() -> Any:
    import transformers

    text = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 97, "head_dim": 8}
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16, "num_attention_heads": 2}
    config = transformers.Gemma3Config(text_config=text, vision_config={**vision, "image_size": 8, "patch_size": 4})
    with torch.device("meta"):
        return transformers.Gemma3ForConditionalGeneration(config)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a module": (lambda: torch.nn.Linear(2, 2), "takes a model of transformers, not a Linear"),
    "a model without a head": (
        lambda: language_model("llama").model,
        "it has no `generate`; `gearcache.attach` serves",
    ),
    "a recurrent model": (mamba, "it takes no static cache"),
    "a model of images": (gemma3_with_images, "it takes more than text"),
    "another attention": (lambda: with_config(_attn_implementation="flex_attention"), "allowed: 'sdpa' and 'eager'"),
    "both directions": (lambda: with_config(is_causal=False), r"`config.is_causal` is False"),
    "other layers": (lambda: with_config(layer_types=["linear_attention"]), "layers of the kind 'linear_attention'"),
    "several devices": (lambda: placed(hf_device_map={"model": "cpu", "lm_head": "disk"}), "lie on several devices"),
    "dynamic rotary embeddings": (lambda: language_model("llama", rope_parameters=DYNAMIC), "of the type 'dynamic'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_slots_cannot_serve_are_refused_by_name(name: str) -> None:
    make, message = REFUSED[name]
    model = make()
    before = dict(vars(model))
    with pytest.raises(UnsupportedMethod, match=message):
        attach_generate(model)
    assert vars(model) == before


def test_a_model_that_is_divided_evenly_between_processes_is_not_refused() -> None:
    from gearcache.integrations.transformers.support import reason_against

    assert reason_against(placed(_tp_size=2)) is None


def test_keys_and_values_whose_sizes_no_config_tells_are_measured(tmp_path: Path) -> None:
    call = {"input_ids": tokens(2, 7), "max_new_tokens": 4, "do_sample": True}
    torch.manual_seed(3)
    expected = language_model("deepseek_v3").generate(**call)
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss="raise")
    for traces in (2, 0):
        model = language_model("deepseek_v3")
        torch.manual_seed(3)  # the token that measures must not draw
        attached = attach_generate(model, batch=[2], prompt=[8], cache_length=16, config=config, cache_dir=tmp_path)
        assert torch.equal(model.generate(**call), expected)
        assert attached.stats.traces == traces
    with torch.device("meta"):
        model = language_model("deepseek_v3")
    with pytest.raises(UnsupportedMethod, match="its config does not tell the sizes of its keys and values"):
        attach_generate(model)


def test_experts_that_run_in_another_way_while_tokens_are_decoded_are_warmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def switched(model: Any) -> Iterator[None]:
        """What transformers does on a GPU."""
        usual = model.get_experts_implementation()
        assert "grouped_mm" in usual.values()
        model.set_experts_implementation(dict.fromkeys(usual, "batched_mm"))
        yield
        model.set_experts_implementation(usual)

    model, plain = language_model("deepseek_v3"), language_model("deepseek_v3")
    monkeypatch.setattr(type(model), "_optimize_model_for_decode", switched)
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss="raise")
    attached = attach_generate(model, batch=[2], prompt=[8], cache_length=16, config=config, cache_dir=tmp_path)
    attached.warm()
    assert attached.stats.traces == 3
    for rows, beams in ((2, 1), (1, 2)):
        call = {"input_ids": tokens(rows, 7), "max_new_tokens": 4, "do_sample": False, "num_beams": beams}
        assert torch.equal(model.generate(**call), plain.generate(**call))
    assert attached.stats.traces == 3


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"batch": []}, GearSpecError, r"batch is \[\]; it must be a list of ints from 1 to 4096"),
        ({"prompt": [64], "cache_length": 32}, GearSpecError, r"prompt is \[64\]; .* from 1 to 32"),
        ({"cache_length": True}, GearSpecError, "cache_length is True; it must be an int of at least 2"),
        ({"config": gearcache.CompilerConfig(on_miss="compile")}, OptionError, "`on_miss` is 'compile'; .*'eager' or"),
    ],
    ids=str,
)
def test_sizes_and_options_are_checked(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    model = language_model("llama", num_hidden_layers=1)
    with pytest.raises(kind, match=message):
        attach_generate(model, **options)
    assert "generate" not in vars(model)


def test_a_model_has_one_attachment_of_either_kind() -> None:
    model = language_model("llama", num_hidden_layers=1)
    plain = gearcache.attach(model)
    with pytest.raises(AlreadyAttached):
        attach_generate(model)
    plain.detach()
    generating = attach_generate(model)
    with pytest.raises(AlreadyAttached, match=r"<attached LlamaForCausalLM\.generate"):
        gearcache.attach(model)
    assert generating.is_attached
    generating.detach()
    assert not {"generate", "_compiled_call_impl"} & set(vars(model))


def unserved(call: dict[str, Any]) -> Any:
    """Why graphs cannot answer a call, or None."""
    from gearcache.integrations.transformers.model_call import UnservedCall, read_call

    found = read_call((), call, "owner", CPU)
    return found if isinstance(found, UnservedCall) else None


@pytest.mark.parametrize(
    ("more", "argument"),
    [
        ({"logits_to_keep": 2}, "logits_to_keep"),
        ({"output_attentions": True}, "output_attentions"),
        ({"token_type_ids": tokens(2, 5)}, "token_type_ids"),
        ({"attention_mask": torch.ones(2, 1, 5, 9)}, "attention_mask"),
        ({"position_ids": torch.zeros(3, 2, 5, dtype=torch.long)}, "position_ids"),
        ({"input_ids": tokens(2, 5).int()}, "input_ids"),
        ({CACHE: None}, CACHE),
        ({CACHE: "static"}, CACHE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_calls_that_graphs_cannot_answer_are_misses(more: dict[str, Any], argument: str) -> None:
    import transformers

    if more.get(CACHE) == "static":
        more = {CACHE: transformers.StaticCache(transformers.LlamaConfig(), max_cache_len=9)}
    call = {"input_ids": tokens(2, 5), "use_cache": True, CACHE: transformers.DynamicCache()}
    assert unserved(call) is None
    found = unserved({**call, **more})
    assert found is not None
    assert found.reason == argument


@pytest.mark.parametrize(
    "change",
    [
        lambda keys: keys.half(),
        lambda keys: keys[:, :1],
        lambda keys: keys[:, :, 1:],
        lambda keys: None,
    ],
)
def test_a_cache_that_holds_what_slots_cannot_is_a_miss(change: Callable[[torch.Tensor], Any]) -> None:
    from gearcache.integrations.transformers.sequence_cache import SequenceCache
    from gearcache.integrations.transformers.slots import Form

    cache = SequenceCache([Form(2, 2, 2, 8, torch.float32, CPU)], "owner", 2, 2)
    cache.advance(3)
    call = {"input_ids": tokens(2, 5), "use_cache": True, CACHE: cache}
    assert unserved(call) is None
    cache.layers[0].keys = change(cache.layers[0].keys)
    found = unserved(call)
    assert found is not None
    assert (found.reason, found.value) == (CACHE, "a cache that was changed")


def test_without_graphs_the_same_code_gives_the_same(tmp_path: Path) -> None:
    """What a fault of the cache or a stance leaves: masks that a model may leave out would show empty slots."""
    model = language_model("llama", num_hidden_layers=1)
    call: dict[str, Any] = {"inputs": tokens(3, 6), "max_new_tokens": 12, "do_sample": False}
    expected = model.generate(**call)
    attached = attach_generate(model, batch=[4], prompt=[8], cache_length=32, cache_dir=tmp_path)
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(model.generate(**call), expected)
    assert attached.methods["decode"].stats.eager_reasons == {"stance": 11}
    assert attached.stats.eager_reasons["stance"] >= 11
    assert attached.stats.calls == sum(stats.calls for stats in attached.stats.methods.values())
