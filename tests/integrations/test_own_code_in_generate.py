"""Code of the user around and inside `generate`: its own `generate`, and its calls of the model in a processor."""

from __future__ import annotations

import copy
import functools
import pickle
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

PROMPT = tokens(2, 5)
#: How often graphs are called for the prompt, and for 4 new tokens of which the last is not read.
CALLS = 4


def shortened(model: Any) -> Any:
    model.generate = functools.partial(model.generate, max_new_tokens=4, do_sample=False)
    return model


def test_a_generate_that_the_model_had_is_what_runs(attach: Attach) -> None:
    expected = shortened(language_model("mistral")).generate(PROMPT)
    model = shortened(language_model("mistral"))
    own = model.generate
    attached = attach(model, "raise")
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied.generate(PROMPT), expected)
    assert attached.stats.calls == 0
    assert torch.equal(model.generate(PROMPT), expected)
    assert attached.stats.calls == CALLS
    attached.detach()
    assert model.generate is own


def test_a_generate_that_was_wrapped_since_goes_on_through_detach_and_attach(attach: Attach) -> None:
    expected = shortened(language_model("mistral")).generate(PROMPT)
    attached = attach(language_model("mistral"), "raise")
    model = shortened(attached.model)
    for calls in (CALLS, CALLS, 2 * CALLS):
        assert torch.equal(model.generate(PROMPT), expected)
        assert attached.stats.calls == calls
        (attached.detach if attached.is_attached else attached.attach)()


def test_a_loop_that_an_own_generate_chooses_is_left_to_it(attach: Attach) -> None:
    def loop(model: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        return model(input_ids, use_cache=True, **{CACHE: options[CACHE]})

    model = language_model("mistral")
    model.generate = functools.partial(model.generate, custom_generate=loop)
    attached = attach(model)
    assert model.generate(PROMPT, max_new_tokens=4).logits.shape[1] == 5
    assert attached.stats.eager_reasons == {"custom_generate": 1}


def test_drafts_of_the_models_own_layers_are_left_to_it(attach: Attach) -> None:
    call: dict[str, Any] = {"assistant_early_exit": 1, "max_new_tokens": 6, "do_sample": False}
    attached = attach(language_model("mistral"))
    expected = language_model("mistral").generate(tokens(1, 9), **call)
    assert torch.equal(attached.model.generate(tokens(1, 9), **call), expected)
    assert "generation_mode" in attached.stats.eager_reasons
    assert attached.stats.gears == {}


@pytest.mark.parametrize("has_cache", [True, False])
def test_a_processor_that_calls_the_model_gets_all_logits_and_its_own_cache(attach: Attach, has_cache: bool) -> None:
    from transformers import DynamicCache

    def generated(model: Any) -> tuple[list[Any], list[Any]]:
        seen = []

        def look(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            cache = DynamicCache() if has_cache else None
            logits = model(input_ids=ids, use_cache=has_cache, **{CACHE: cache}).logits
            seen.append((logits.shape, None if cache is None else cache.get_seq_length()))
            return scores - logits[:, 0]

        texts = model.generate(PROMPT, logits_processor=[look], max_new_tokens=4, do_sample=False)
        return texts.tolist(), seen

    attached = attach(language_model("mistral"), "raise")
    assert generated(attached.model) == generated(language_model("mistral"))
    assert attached.stats.calls == CALLS


@pytest.mark.parametrize("negative", [{}, {"negative_prompt_ids": tokens(2, 3, 1)}])
def test_guidance_calls_the_model_itself(attach: Attach, negative: dict[str, Any]) -> None:
    call: dict[str, Any] = {"guidance_scale": 1.5, "max_new_tokens": 4, "do_sample": False, **negative}
    attached = attach(language_model("mistral"), "raise")
    expected = language_model("mistral").generate(PROMPT, **call)
    assert torch.equal(attached.model.generate(PROMPT, **call), expected)
    assert (attached.stats.calls, attached.stats.eager_calls) == (CALLS, 0)


def test_a_generate_within_generate_is_served_too(attach: Attach) -> None:
    def generated(model: Any) -> Any:
        def look(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            words = model.generate(ids, max_new_tokens=1, do_sample=False)
            return scores.scatter(1, words[:, -1:], -9.0)

        return model.generate(PROMPT, logits_processor=[look], max_new_tokens=4, do_sample=False)

    attached = attach(language_model("mistral"), "raise")
    assert torch.equal(generated(attached.model), generated(language_model("mistral")))
    assert attached.stats.calls == CALLS + 4


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_the_length_that_is_the_default_is_known_before_the_first_token(attach: Attach) -> None:
    attached = attach(language_model("mistral"), "raise")
    with pytest.raises(UnknownGear, match="`max_length` is 69 tokens or more; allowed: up to 64 tokens"):
        attached.model.generate(tokens(1, 50))
    assert attached.stats.calls == 0
