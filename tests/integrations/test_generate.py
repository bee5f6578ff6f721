"""`generate` of an attached model gives what plain `generate` gives, cold and relaunched, whatever it is asked for."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gearcache.errors import AlreadyAttached, UnknownGear, UnsupportedMethod
from tests.support.language_models import (
    CACHE,
    attach_generate,
    language_model,
    left_padded,
    needs_transformers,
    right_padded,
    tokens,
)
from tests.support.relaunch import run_python

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

    Attach = Callable[..., AttachedModel]

pytestmark = needs_transformers

#: A sliding window of 6, so windows, rotary positions and padding meet.
FAMILY = "mistral"
#: Family and call: those that graphs serve throughout. Of an encoder-decoder, its encoder comes from graphs too.
SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "left padding": (FAMILY, {"input_ids": tokens(3, 9), "attention_mask": left_padded(3, 9)}),
    "longer, with left padding": (FAMILY, {"input_ids": tokens(3, 45), "attention_mask": left_padded(3, 45)}),
    "up to the last slot": (FAMILY, {"input_ids": tokens(1, 53), "max_new_tokens": 12}),
    "returned sequences": (FAMILY, {"input_ids": tokens(1, 7), "do_sample": True, "num_return_sequences": 3}),
    "beams": (FAMILY, {"input_ids": tokens(1, 7), "num_beams": 4}),
    "a static cache": (FAMILY, {"input_ids": tokens(2, 5), "cache_implementation": "static"}),
    "padding on the right": ("t5", {"input_ids": tokens(3, 9), "attention_mask": right_padded(3, 9)}),
    "beams of encoded texts": ("t5", {"input_ids": tokens(2, 9), "num_beams": 2}),
    "words to begin with": ("t5", {"input_ids": tokens(2, 7), "decoder_input_ids": tokens(2, 4, 3)}),
}
_MASKED_WORDS = {"decoder_input_ids": tokens(2, 4), "decoder_attention_mask": left_padded(2, 4)}


def own_loop(model: Any, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
    for _ in range(3):
        input_ids = torch.cat([input_ids, model(input_ids).logits[:, -1:].argmax(-1)], 1)
    return input_ids


#: Those that the model itself serves, in part or throughout, with the argument that is why.
UNSERVED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "past the last slot": (FAMILY, "max_length", {"input_ids": tokens(1, 50), "max_new_tokens": 20}),
    "a batch above all gears": (FAMILY, "input_ids", {"input_ids": tokens(5, 5)}),
    "no cache": (FAMILY, "use_cache", {"input_ids": tokens(2, 5), "use_cache": False}),
    "hidden states": (FAMILY, "output_hidden_states", {"input_ids": tokens(2, 5), "output_hidden_states": True}),
    "embeddings": (FAMILY, "inputs_embeds", {"inputs_embeds": torch.ones(2, 6, 32)}),
    "drafts": (FAMILY, "generation_mode", {"input_ids": tokens(1, 9), "prompt_lookup_num_tokens": 3}),
    "a prompt in chunks": (FAMILY, "prefill_chunk_size", {"input_ids": tokens(1, 9), "prefill_chunk_size": 4}),
    "a loop of the user": (FAMILY, "custom_generate", {"input_ids": tokens(1, 9), "custom_generate": own_loop}),
    "texts above all gears": ("t5", "input_ids", {"input_ids": tokens(5, 7)}),
    "a mask of the decoder": ("t5", "decoder_attention_mask", {"input_ids": tokens(2, 5), **_MASKED_WORDS}),
}


def generated(model: Any, seed: int = 7, **arguments: Any) -> list[Any]:
    torch.manual_seed(seed)
    found = model.generate(**{"max_new_tokens": 10, "do_sample": False, **arguments})
    return found.tolist()  # type: ignore[no-any-return]


def plain_of(call: dict[str, Any], family: str = FAMILY) -> list[Any]:
    return generated(language_model(family), **call)


@pytest.fixture
def attached(attach: Attach) -> AttachedModel:
    """A model with weights, and graphs that were made on `meta`."""
    return attach(language_model(FAMILY))


@pytest.fixture
def raising(attach: Attach) -> AttachedModel:
    return attach(language_model(FAMILY), "raise")


@pytest.mark.parametrize("name", SERVED)
def test_served_calls_give_what_plain_generate_gives(attach: Attach, name: str) -> None:
    family, call = SERVED[name]
    attached = attach(language_model(family))
    assert generated(attached.model, **call) == plain_of(call, family)
    assert (attached.stats.eager_reasons, attached.stats.traces, attached.stats.compiles) == ({}, 0, 0)
    assert all(method.stats.calls for method in attached.methods.values())


@pytest.mark.parametrize("name", UNSERVED)
def test_unserved_calls_run_without_graphs_or_raise(
    attach: Attach, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    family, argument, call = UNSERVED[name]
    attached, raising = attach(language_model(family)), attach(language_model(family), "raise")
    expected = plain_of(call, family)
    with caplog.at_level(logging.WARNING, "gearcache"):
        for _ in range(2):
            assert generated(attached.model, **call) == expected
    assert (list(attached.stats.eager_reasons), attached.stats.traces) == ([argument], 0)
    told = [record.getMessage() for record in caplog.records if record.name == "gearcache"]
    assert len(told) == 1
    assert told[0].startswith(f"`{type(attached.model).__name__}.generate` runs without graphs: {argument}: ")
    with pytest.raises(UnknownGear, match=f"argument `{argument}` is .*; allowed: "):
        generated(raising.model, **call)


def test_there_is_a_graph_for_each_batch_and_one_for_each_pair_of_batch_and_prompt(attached: AttachedModel) -> None:
    attached.warm()
    assert {name: len(method.stats.gears) for name, method in attached.methods.items()} == {"prefill": 4, "decode": 2}


def test_results_in_a_dict_have_scores_and_a_cache(attached: AttachedModel) -> None:
    call: dict[str, Any] = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    call |= {"input_ids": tokens(3, 5), "max_new_tokens": 6, "do_sample": False}
    expected, found = language_model(FAMILY).generate(**call), attached.model.generate(**call)
    assert torch.equal(found.sequences, expected.sequences)
    for name in ("scores", "logits"):
        for left, right in zip(found[name], expected[name], strict=True):
            torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    assert getattr(found, CACHE).get_seq_length() == getattr(expected, CACHE).get_seq_length() == 10


@pytest.mark.parametrize("change", ["crop", "plain"])
def test_a_returned_cache_goes_on(attached: AttachedModel, change: str) -> None:
    """A conversation: the second call reads only what the first one has not."""
    sequences = []
    for model in (language_model(FAMILY), attached.model):
        options = {"do_sample": False, "max_new_tokens": 5, "return_dict_in_generate": True}
        first = model.generate(tokens(2, 9), **options)
        cache, ids = getattr(first, CACHE), torch.cat([first.sequences, tokens(2, 6, 1)], 1)
        if change == "crop":
            if type(cache).__name__ != "SequenceCache":  # its layers let go of what the window hides
                cache = None
            else:
                cache.crop(-4)
        if change == "plain" and model is attached.model:
            attached.detach()
        ids = model.generate(ids, **{CACHE: cache}, **options).sequences
        sequences.append(ids.tolist())
    assert sequences[0] == sequences[1]
    assert attached.stats.eager_reasons == {}


def test_a_cache_of_another_model_is_not_served(attached: AttachedModel, raising: AttachedModel) -> None:
    call: dict[str, Any] = {"do_sample": False, "max_new_tokens": 5}
    cache = attached.model.generate(tokens(2, 9), return_dict_in_generate=True, **call)[CACHE]
    with pytest.raises(UnknownGear, match=f"`{CACHE}` is the cache of another model"):
        raising.model.generate(tokens(2, 20), **{CACHE: cache}, **call)


def test_streamers_and_stopping_criteria_see_the_users_tokens(attached: AttachedModel) -> None:
    seen: dict[str, list[Any]] = {}

    class Streamer:
        def __init__(self, name: str) -> None:
            self.told = seen.setdefault(name, [])

        def put(self, value: torch.Tensor) -> None:
            self.told.append(value.tolist())

        def end(self) -> None:
            self.told.append("end")

    def stop(ids: torch.Tensor, scores: Any) -> torch.Tensor:
        return torch.full((ids.shape[0],), ids.shape[1] >= 12)

    call = {"input_ids": tokens(1, 6), "stopping_criteria": [stop], "max_new_tokens": 20}
    for name, model in (("plain", language_model(FAMILY)), ("attached", attached.model)):
        assert len(generated(model, streamer=Streamer(name), **call)[0]) == 12
    assert seen["plain"] == seen["attached"]


def test_other_calls_of_the_model_run_as_they_did(attached: AttachedModel) -> None:
    ids = tokens(5, 70)
    with torch.no_grad():
        assert torch.equal(attached.model(ids).logits, language_model(FAMILY)(ids).logits)
    attached.model(tokens(2, 9), labels=tokens(2, 9)).loss.backward()
    assert attached.model.lm_head.weight.grad is not None
    assert attached.stats.calls == 0


def test_threads_generate_at_once(attached: AttachedModel) -> None:
    calls = [{"input_ids": tokens(1 + seed % 3, 4 + seed, seed)} for seed in range(6)]
    expected, found = [plain_of(call) for call in calls], [None] * len(calls)

    def run(index: int) -> None:
        found[index] = attached.model.generate(**calls[index], max_new_tokens=10, do_sample=False).tolist()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_detach_restores_everything(attach: Attach) -> None:
    model, (_, call) = language_model(FAMILY), SERVED["up to the last slot"]
    before, config = dict(vars(model)), model.generation_config.to_dict()
    attached = attach(model)
    with pytest.raises(AlreadyAttached, match="this `MistralForCausalLM` is attached already"):
        attach_generate(model)
    generated(model, **call)
    attached.detach()
    attached.detach()
    assert (vars(model), model.generation_config.to_dict()) == (before, config)
    calls = attached.stats.calls
    assert generated(model, **call) == plain_of(call)
    assert attached.stats.calls == calls
    attached.attach()
    generated(model, **call)
    assert attached.stats.calls > calls


def test_detach_restores_an_encoder(attach: Attach) -> None:
    model = language_model("t5")
    before = dict(vars(model)), dict(vars(model.encoder))
    attached = attach(model)
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


def test_copies_of_the_model_are_plain(attached: AttachedModel) -> None:
    _, call = SERVED["up to the last slot"]
    for copied in (copy.deepcopy(attached.model), pickle.loads(pickle.dumps(attached.model))):
        assert generated(copied, **call) == plain_of(call)
        assert "_compiled_call_impl" not in vars(copied)
    assert attached.stats.calls == 0


#: What a new process runs: calls by the one line that a user writes; prints texts and counters.
RELAUNCHED = """
import json, sys, gearcache
from gearcache.integrations.transformers import attach_generate
from tests.integrations.test_generate import SERVED, generated
from tests.support.language_models import MISTRAL_SIZES, language_model
config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss="raise")
attached = attach_generate(language_model("mistral"), **MISTRAL_SIZES, config=config, cache_dir=sys.argv[1])
texts = [generated(attached.model, **SERVED[name][1]) for name in sys.argv[2:]]
counters = {name: getattr(attached.stats, name) for name in ("traces", "compiles", "misses", "hits")}
print(json.dumps({"texts": texts, **counters}))
"""


def test_a_relaunch_loads_and_gives_the_same(mistral_entries: Path) -> None:
    names = ("left padding", "longer, with left padding", "returned sequences", "beams")
    report = run_python(RELAUNCHED, str(mistral_entries), *names)
    texts = [plain_of(SERVED[name][1]) for name in names]
    assert report == {"texts": texts, "traces": 0, "compiles": 0, "misses": 0, "hits": 2}
