"""Ints that a method writes and on which tensors and branches depend: served by few variants, and as eager does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.guards.access import Access, Scope, Walker
from gearcache.guards.evidence.checks import Check
from tests.scenarios.numbers import Machine
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


def test_what_a_trace_assumed_of_an_int_is_checked_on_every_call(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gearcache.ge_cache.capture import capture

    def served() -> list[float]:
        machine = Machine()
        cached = gearcache.cache_compile(machine.branches, config=strict_config(), cache_dir=cache_dir / str(wrong))
        found = []
        for machine.position in (0, 20):
            found.append(cached(torch.ones(2)).sum().item())
        return found

    wrong = False
    assert served() == [0.0, 4.0]

    def unchecked(numbers: Any, access: Any, shape_env: Any) -> list[Check]:
        numbers.checked.update(guard.expr for guard in shape_env.guards)
        return []

    monkeypatch.setattr(capture, "number_checks", unchecked)
    wrong = True
    assert served() == [0.0, 0.0], "without its check, the variant of the other branch serves the call"


def test_a_check_of_ints_names_paths_and_fails_where_a_divisor_is_0() -> None:
    machine = Machine()
    scope = Scope({"self": machine}, {}, {})
    path = Access(("argument", "self")).then("attr", "position")
    check = Check("numbers", path, [["(7 // n0) > 2", "n0 < 3"], [["n0", path.to_plain()]]])
    for value, holds in ((1, True), (2, True), (3, False), (0, False), (True, False), (1.0, False)):
        machine.position = value  # type: ignore[assignment]
        failure = check.failure(Walker(scope))
        assert (failure is None) is holds
    assert "(7 // self.position) > 2 and self.position < 3 does not hold" in str(failure)


def test_an_int_of_more_than_64_bits_raises_what_eager_raises(cache_dir: Path) -> None:
    machine = Machine()
    cached = gearcache.cache_compile(machine.arithmetic, config=strict_config())
    cached(torch.ones(2))
    machine.position = 2**63 - 2
    with torch.no_grad(), pytest.raises(OverflowError, match="too big"):
        cached(torch.ones(2))
    assert machine.position == 2**63 - 1, "the method itself has counted, once"


def test_a_sliding_window_cache_takes_few_variants(cache_dir: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = _model(transformers)
    cached = gearcache.cache_compile(model.forward, config=strict_config(), dynamic=False)
    for length in (2, 5):
        with torch.inference_mode():
            expected, found = (_generated(transformers, model, forward, length) for forward in (model.forward, cached))
        assert torch.equal(expected, found)
    # Two prefills, and decode before, at and after the step on which the window is full.
    assert len(cached._binding.loaded.variants) <= 5


def _model(transformers: Any) -> Any:
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "sliding_window": 4}
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, **heads)).eval()


def _generated(transformers: Any, model: Any, forward: Any, length: int) -> torch.Tensor:
    from gearcache.integrations.transformers.cache_name import CACHE

    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    ids = torch.arange(length)[None] % 7
    logits = []
    for _ in range(6):
        found = forward(input_ids=ids, **{CACHE: cache}, use_cache=True).logits[:, -1:]
        logits.append(found)
        ids = found.argmax(-1)
    return torch.cat(logits)
