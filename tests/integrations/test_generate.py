"""`generate` of an attached model gives what plain `generate` gives, cold and relaunched, whatever it is asked for."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import gearcache
from gearcache.errors import AlreadyAttached, UnknownGear
from tests.support.language_models import (
    CACHE,
    MISTRAL_SIZES,
    attach_generate,
    language_model,
    left_padded,
    needs_transformers,
    tokens,
)
from tests.support.relaunch import run_python

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

pytestmark = needs_transformers

#: A sliding window of 6, so windows, rotary positions and padding meet.
FAMILY = "mistral"
#: Calls that graphs serve throughout.
SERVED: dict[str, dict[str, Any]] = {
    "left padding": {"input_ids": tokens(3, 9), "attention_mask": left_padded(3, 9)},
    "longer, with left padding": {"input_ids": tokens(3, 45), "attention_mask": left_padded(3, 45)},
    "up to the last slot": {"input_ids": tokens(1, 53), "max_new_tokens": 12},
    "returned sequences": {"input_ids": tokens(1, 7), "do_sample": True, "num_return_sequences": 3},
    "beams": {"input_ids": tokens(1, 7), "num_beams": 4},
    "penalties": {"input_ids": tokens(2, 12), "repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    "a static cache": {"input_ids": tokens(2, 5), "cache_implementation": "static"},
}
#: Calls that the model itself serves, in part or throughout, and the argument that is why.
UNSERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "past the last slot": ("max_length", {"input_ids": tokens(1, 50), "max_new_tokens": 20}),
    "a batch above all gears": ("input_ids", {"input_ids": tokens(5, 5)}),
    "no cache": ("use_cache", {"input_ids": tokens(2, 5), "use_cache": False}),
    "hidden states": ("output_hidden_states", {"input_ids": tokens(2, 5), "output_hidden_states": True}),
    "embeddings": ("inputs_embeds", {"inputs_embeds": torch.ones(2, 6, 32)}),
    "drafts": ("prompt_lookup_num_tokens", {"input_ids": tokens(1, 9), "prompt_lookup_num_tokens": 3}),
}


def generated(model: Any, seed: int = 7, **arguments: Any) -> list[Any]:
    torch.manual_seed(seed)
    found = model.generate(**{"max_new_tokens": 10, "do_sample": False, **arguments})
    return found.tolist()  # type: ignore[no-any-return]


def plain_of(call: dict[str, Any]) -> list[Any]:
    return generated(language_model(FAMILY), **call)


def attached_to(model: Any, root: Path, on_miss: str = "eager") -> AttachedModel:
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss=on_miss)
    return attach_generate(model, **MISTRAL_SIZES, config=config, cache_dir=root)


@pytest.fixture
def attached(mistral_entries: Path) -> Iterator[AttachedModel]:
    """A model with weights, and graphs that were made on `meta`."""
    found = attached_to(language_model(FAMILY), mistral_entries)
    yield found
    assert (found.stats.traces, found.stats.compiles) == (0, 0), found.explain()


@pytest.fixture
def raising(mistral_entries: Path) -> AttachedModel:
    return attached_to(language_model(FAMILY), mistral_entries, "raise")


@pytest.mark.parametrize("name", SERVED)
def test_served_calls_give_what_plain_generate_gives(attached: AttachedModel, name: str) -> None:
    assert generated(attached.model, **SERVED[name]) == plain_of(SERVED[name])
    assert (attached.stats.eager_reasons, attached.stats.calls > 0) == ({}, True)


@pytest.mark.parametrize("name", UNSERVED)
def test_unserved_calls_run_without_graphs_or_raise(
    attached: AttachedModel, raising: AttachedModel, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    argument, call = UNSERVED[name]
    expected = plain_of(call)
    with caplog.at_level(logging.WARNING, "gearcache"):
        for _ in range(2):
            assert generated(attached.model, **call) == expected
    assert list(attached.stats.eager_reasons) == [argument]
    told = [record.getMessage() for record in caplog.records if record.name == "gearcache"]
    assert len(told) == 1
    assert told[0].startswith(f"`MistralForCausalLM.generate` runs without graphs: `{argument}` is ")
    with pytest.raises(UnknownGear, match=f"argument `{argument}` is .*; allowed: "):
        generated(raising.model, **call)


def test_there_is_a_graph_for_each_batch_and_one_for_each_pair_of_batch_and_prompt(attached: AttachedModel) -> None:
    attached.warm()
    assert {name: len(method.stats.gears) for name, method in attached.methods.items()} == {"prefill": 4, "decode": 2}


def test_a_generation_too_long_raises_before_its_first_token(raising: AttachedModel) -> None:
    with pytest.raises(UnknownGear, match="is 69 tokens or more; allowed: up to 64 tokens in the cache"):
        generated(raising.model, input_ids=tokens(1, 50), max_new_tokens=20)
    assert raising.stats.calls == 0


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


def test_a_cache_of_inference_mode_goes_on_outside_of_it(attached: AttachedModel) -> None:
    call: dict[str, Any] = {"do_sample": False, "max_new_tokens": 5}
    with torch.inference_mode():
        first = attached.model.generate(tokens(2, 9), return_dict_in_generate=True, **call)
    found = attached.model.generate(first.sequences.clone(), **{CACHE: getattr(first, CACHE)}, **call)
    assert found.tolist() == plain_of({"input_ids": tokens(2, 9), "max_new_tokens": 10})
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


def test_detach_restores_everything(mistral_entries: Path) -> None:
    model, call = language_model(FAMILY), SERVED["up to the last slot"]
    before, config = dict(vars(model)), model.generation_config.to_dict()
    attached = attached_to(model, mistral_entries)
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


def test_copies_of_the_model_are_plain(attached: AttachedModel) -> None:
    call = SERVED["up to the last slot"]
    for copied in (copy.deepcopy(attached.model), pickle.loads(pickle.dumps(attached.model))):
        assert generated(copied, **call) == plain_of(call)
        assert "_compiled_call_impl" not in vars(copied)
    assert attached.stats.calls == 0


#: What a new process runs: calls by the one line that a user writes; prints texts and counters.
RELAUNCHED = """
import json, sys, torch, gearcache
from gearcache.integrations.transformers import attach_generate
from tests.support.language_models import language_model
root, family, sizes, calls = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:])
model = language_model(family)
config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss="raise")
attached = attach_generate(model, **sizes, config=config, cache_dir=root)
texts = []
for call in calls:
    torch.manual_seed(7)
    call = {name: torch.tensor(value) if isinstance(value, list) else value for name, value in call.items()}
    texts.append(model.generate(**{"max_new_tokens": 10, "do_sample": False, **call}).tolist())
counters = {name: getattr(attached.stats, name) for name in ("traces", "compiles", "misses", "hits")}
print(json.dumps({"texts": texts, **counters}))
"""


def test_a_relaunch_loads_and_gives_the_same(mistral_entries: Path) -> None:
    calls = [SERVED[name] for name in ("left padding", "longer, with left padding", "returned sequences", "beams")]
    plain = [
        {name: getattr(value, "tolist", lambda value=value: value)() for name, value in call.items()} for call in calls
    ]
    report = run_python(RELAUNCHED, str(mistral_entries), FAMILY, json.dumps(MISTRAL_SIZES), json.dumps(plain))
    assert report == {"texts": [plain_of(call) for call in calls], "traces": 0, "compiles": 0, "misses": 0, "hits": 2}
