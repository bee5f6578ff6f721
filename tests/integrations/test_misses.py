"""What is left to a model with `on_miss="eager"`: also what its cached methods refuse. Operators see its counts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import CaptureError, CompileError, CompileNotAgreed, InputError, UnknownGear
from gearcache.integrations.misses import Misses, UnservedCall
from gearcache.telemetry.counters import eager_calls
from tests.support.language_models import attach_generate, language_model, needs_transformers, tokens
from tests.support.sentence_models import attach_encode, needs_sentence_transformers, sentence_model

REFUSALS: list[tuple[Exception, str]] = [
    (CompileNotAgreed("m", "new"), "ranks"),
    (CompileError("m", "g", "no memory"), "no graph"),
    (CaptureError("m", "it branches"), "no graph"),
    (InputError("m", "x", "an int", "tensors"), "no graph"),
    (UnknownGear("m", "x", "7", "4"), "size"),
]


@pytest.mark.parametrize(("error", "reason"), REFUSALS)
def test_what_a_cached_method_refuses_is_a_miss(
    error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise error

    counted: list[str] = []
    misses = Misses("Net.generate", "eager", counted.append)
    with caplog.at_level(logging.WARNING, "gearcache"):
        for _ in range(2):
            miss = misses.attempt(refuse)
            assert isinstance(miss, UnservedCall)
            misses.leave(miss)
    assert counted == [reason, reason]
    assert caplog.messages == [f"`Net.generate` runs without graphs: {reason}: {error}; served: {miss.allowed}"]
    with pytest.raises(type(error)):
        Misses("Net.generate", "raise", counted.append).attempt(refuse)
    with pytest.raises(UnknownGear, match=f"`Net.generate`: argument `{reason}` is "):
        Misses("Net.generate", "raise", counted.append).leave(miss)


def withdraw(*methods: Any) -> None:
    """What `gearcache.agree` leaves of the right to compile."""
    for method in methods:
        method.right.withdraw()


@needs_transformers
def test_generate_goes_on_without_graphs_that_ranks_have_not_agreed_on(tmp_path: Path) -> None:
    call: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False}
    expected = language_model("llama", num_hidden_layers=1).generate(tokens(2, 5), **call)
    sizes: dict[str, Any] = {"batch": [2], "prompt": [8], "cache_length": 16, "cache_dir": tmp_path}
    for on_miss in ("eager", "raise"):
        config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss=on_miss)
        attached = attach_generate(language_model("llama", num_hidden_layers=1), **sizes, config=config)
        withdraw(*attached.methods.values())
        if on_miss == "raise":
            with pytest.raises(CompileNotAgreed):
                attached.model.generate(tokens(2, 5), **call)
        else:
            before = eager_calls().get(("LlamaForCausalLM.decode", "ranks"), 0)
            assert torch.equal(attached.model.generate(tokens(2, 5), **call), expected)
            assert attached.stats.eager_reasons == {"ranks": 4}
            assert eager_calls()["LlamaForCausalLM.decode", "ranks"] == before + 4


@needs_sentence_transformers
def test_encode_goes_on_without_graphs_that_ranks_have_not_agreed_on(tmp_path: Path) -> None:
    model = sentence_model(tmp_path / "model")
    expected = model.encode(["the quick fox"])
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    attached = attach_encode(model, batch=[1], sequence=[8], config=config, cache_dir=tmp_path / "cache")
    withdraw(attached.method)
    assert (model.encode(["the quick fox"]) == expected).all()
    assert attached.stats.eager_reasons == {"ranks": 1}
