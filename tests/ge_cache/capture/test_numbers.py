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
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow
_MODULE = "tests.scenarios.numbers"


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


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.parametrize(("method", "variants"), [("masks", 1)])
def test_compiled_graphs_take_ints_as_eager_does(cache_dir: Path, method: str, variants: int) -> None:
    ours, theirs = Machine(), Machine()
    cached = gearcache.cache_compile(getattr(ours, method), config=strict_config("inductor"), dynamic=False)
    x = torch.randn(4, 4)
    for value in (0, 2**40, -9):
        ours.position = theirs.position = value
        with torch.no_grad():
            torch.testing.assert_close(list(cached(x)), list(getattr(theirs, method)(x)))
    assert len(cached._binding.loaded.variants) == variants


def test_an_int_of_more_than_64_bits_raises_what_eager_raises(cache_dir: Path) -> None:
    machine = Machine()
    cached = gearcache.cache_compile(machine.arithmetic, config=strict_config())
    cached(torch.ones(2))
    machine.position = 2**63 - 2
    with torch.no_grad(), pytest.raises(OverflowError, match="too big"):
        cached(torch.ones(2))
    assert machine.position == 2**63 - 1, "the method itself has counted, once"


@pytest.mark.parametrize(
    ("family", "dynamic"), [("Mistral", False), pytest.param("Gemma2", True, marks=pytest.mark.thorough)]
)
def test_a_sliding_window_cache_takes_few_variants(cache_dir: Path, family: str, dynamic: bool) -> None:
    transformers = pytest.importorskip("transformers")
    model = _model(transformers, family)
    cached = gearcache.cache_compile(model.forward, config=strict_config(), dynamic=dynamic)
    for length in (4, 9):
        with torch.inference_mode():
            expected, found = (_generated(transformers, model, forward, length) for forward in (model.forward, cached))
        assert torch.equal(expected, found)
    # Two prefills, and decode before, at and after the step on which the window is full.
    assert len(cached._binding.loaded.variants) <= 5


@pytest.mark.thorough  # `test_decoders` relaunches decoders
def test_a_relaunch_serves_a_sliding_window_cache_without_a_trace(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    cold, warm = (
        run_python(_PROGRAM, environ={"TORCHAIR_CACHE_HOME": str(tmp_path)}, compiles=compiles)
        for compiles in (True, False)
    )
    assert cold["traces"] > 0
    assert (warm["traces"], warm["misses"]) == (0, 0)
    assert warm["equal"] is cold["equal"] is True


_PROGRAM = """
import json, torch, transformers, gearcache
from tests.ge_cache.capture import test_numbers as tests
from tests.support.scenarios import strict_config
model = tests._model(transformers, "Mistral")
cached = gearcache.cache_compile(model.forward, config=strict_config(), dynamic=False)
with torch.inference_mode():
    expected, found = (tests._generated(transformers, model, forward, 4) for forward in (model.forward, cached))
stats = cached.stats
numbers = {name: getattr(stats, name) for name in ("traces", "misses")}
print(json.dumps({**numbers, "equal": torch.equal(expected, found)}))
"""


def _model(transformers: Any, family: str) -> Any:
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "sliding_window": 8}
    torch.manual_seed(0)
    if family == "Mistral":
        return transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, **heads)).eval()
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "head_dim": 16}
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**sizes, **heads, **kinds)).eval()


def _generated(transformers: Any, model: Any, forward: Any, length: int) -> torch.Tensor:
    from gearcache.integrations.transformers.cache_name import CACHE

    cache = transformers.StaticCache(config=model.config, max_cache_len=32)
    ids = torch.arange(length)[None] % 7
    logits = []
    for _ in range(13):
        found = forward(input_ids=ids, **{CACHE: cache}, use_cache=True).logits[:, -1:]
        logits.append(found)
        ids = found.argmax(-1)
    return torch.cat(logits)
