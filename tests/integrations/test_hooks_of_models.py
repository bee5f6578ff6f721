"""Hooks on an attached model see, and may change, what `generate` gives and gets: nothing that it is filled up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.language_models import language_model, left_padded, needs_transformers, tokens

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

    Attach = Callable[..., AttachedModel]

pytestmark = needs_transformers

Log = list[Any]
CALL: dict[str, Any] = {"input_ids": tokens(3, 5), "attention_mask": left_padded(3, 5), "max_new_tokens": 4}


def sizes(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value.shape) for name, value in sorted(values.items()) if isinstance(value, torch.Tensor)}


def sees_arguments(model: Any, log: Log) -> None:
    def hook(module: Any, args: Any, kwargs: Any) -> None:
        log.append(sizes(kwargs))

    model.register_forward_pre_hook(hook, with_kwargs=True)


def changes_arguments(model: Any, log: Log) -> None:
    def hook(module: Any, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "input_ids": (kwargs["input_ids"] + 1) % 97}

    model.register_forward_pre_hook(hook, with_kwargs=True)


def changes_logits(model: Any, log: Log) -> None:
    def hook(module: Any, args: Any, output: Any) -> Any:
        log.append(sizes(output))
        output.logits = -output.logits
        return output

    model.register_forward_hook(hook)


def sees_the_encoder(model: Any, log: Log) -> None:
    sees_arguments(model.encoder, log)


HOOKS = [
    *[("mistral", register) for register in (sees_arguments, changes_arguments, changes_logits)],
    *[("t5", register) for register in (changes_logits, sees_the_encoder)],
]


def told(model: Any, register: Callable[[Any, Log], None], **call: Any) -> tuple[list[Any], Log]:
    log: Log = []
    register(model, log)
    return model.generate(**{**CALL, "do_sample": False, **call}).tolist(), log


@pytest.mark.parametrize(("family", "register"), HOOKS)
def test_hooks_see_what_generate_gives(family: str, register: Callable[[Any, Log], None], attach: Attach) -> None:
    plain, model = language_model(family), language_model(family)
    attached = attach(model)
    assert told(model, register) == told(plain, register)
    assert (attached.stats.eager_reasons, attached.stats.traces) == ({}, 0)


def test_logits_of_all_words_are_left_to_the_model_where_hooks_see_them(attach: Attach) -> None:
    """`generate` reads those of the last one, and asks other models for no others."""
    plain, model = language_model("t5"), language_model("t5")
    attached = attach(model)
    words = {"decoder_input_ids": tokens(3, 3, 2)}
    assert told(model, changes_logits, **words) == told(plain, changes_logits, **words)
    assert list(attached.stats.eager_reasons) == ["decoder_input_ids"]
