"""Several continuations of one prefix: whoever copies a cache, a layer or takes its tensors, keeps what was there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.language_models import CACHE, language_model, needs_transformers, tokens

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

    Attach = Callable[..., AttachedModel]

pytestmark = needs_transformers

OPTIONS: dict[str, Any] = {"do_sample": False, "max_new_tokens": 5, "return_dict_in_generate": True}


def with_layers(cache: Any, copied: Callable[[Any], Any]) -> Any:
    branch = copy.copy(cache)
    branch.layers = [copied(layer) for layer in cache.layers]
    return branch


#: What makes a branch of a cache.
BRANCHES: dict[str, Callable[[Any], Any]] = {
    "copies of layers": lambda cache: with_layers(cache, copy.copy),
    "a deep copy": copy.deepcopy,
}


def first_turn(model: Any) -> tuple[Any, torch.Tensor]:
    found = model.generate(tokens(2, 20), **OPTIONS)  # graphs read them in two parts
    return getattr(found, CACHE), found.sequences


def going_on(model: Any, cache: Any, ids: torch.Tensor, seed: int, **options: Any) -> Any:
    """The texts of another turn, which is another one for each seed."""
    ids = torch.cat([ids, tokens(2, 3, seed)], 1)
    return model.generate(ids, **{CACHE: cache}, **{**OPTIONS, **options}).sequences.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_of_one_prefix_go_their_own_ways(name: str, attach: Attach) -> None:
    """As those of plain transformers, in which order ever they go on."""
    found = []
    for model in (language_model("mistral"), attach(language_model("mistral"), "raise").model):
        cache, ids = first_turn(model)
        branches = [cache, *(BRANCHES[name](cache) for _ in range(2))]
        texts = [going_on(model, branch, ids, seed) for seed, branch in enumerate(branches)]
        found.append([*texts, going_on(model, cache, torch.tensor(texts[0]), 3)])
    assert found[0] == found[1]
    assert len({str(texts) for texts in found[0]}) == len(found[0])


def test_beams_leave_a_copy_as_it_was(attach: Attach) -> None:
    """They reorder the cache at each step, and write it anew."""
    found = []
    for model in (language_model("mistral"), attach(language_model("mistral"), "raise").model):
        cache, ids = first_turn(model)
        branch = with_layers(cache, copy.copy)
        kept = [(layer.keys, layer.values) for layer in cache.layers]
        before = [(keys.clone(), values.clone()) for keys, values in kept]
        cache.batch_select_indices(torch.tensor([0, 0]))
        beams = model.generate(
            torch.cat([ids[:1], tokens(1, 3, 1)], 1), **{CACHE: cache}, **{**OPTIONS, "num_beams": 2}
        )
        for pair, expected in zip(kept, before, strict=True):
            assert all(map(torch.equal, pair, expected))
        found.append((beams.sequences.tolist(), going_on(model, branch, ids, 2)))
    assert found[0] == found[1]


@pytest.mark.slow
def test_branches_of_an_encoder_decoder_go_their_own_ways(attach: Attach) -> None:
    import transformers

    found = []
    for model in (language_model("t5"), attach(language_model("t5"), "raise").model):
        call: dict[str, Any] = {"inputs": tokens(2, 6), **OPTIONS, "eos_token_id": None}
        turn = model.generate(**call)
        pair = getattr(turn, CACHE)
        branch = transformers.EncoderDecoderCache.__new__(type(pair))
        vars(branch).update(vars(pair))
        branch.self_attention_cache = with_layers(pair.self_attention_cache, copy.copy)
        branch.cross_attention_cache = with_layers(pair.cross_attention_cache, copy.copy)
        texts = []
        for seed, cache in ((1, pair), (2, branch)):
            ids = torch.cat([turn.sequences, tokens(2, 1, seed)], 1)
            texts.append(model.generate(**call, decoder_input_ids=ids, **{CACHE: cache}).sequences.tolist())
        found.append(texts)
    assert found[0] == found[1]
