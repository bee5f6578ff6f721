"""`input_signature=` and `set_inputs`: what is declared is compiled without an example, and checked on every call."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from gearcache import Symbol, TensorSpec
from gearcache.errors import GearSpecError, InputError
from tests.scenarios.input_signatures import Net
from tests.support.scenarios import strict_config

INTS, FLOATS = torch.int64, torch.float32


def _cached(method: Any = None, **parameters: Any) -> Any:
    return gearcache.cache_compile(method or Net().pooled, config=strict_config(), **parameters)


def _batch() -> Symbol:
    return Symbol("batch", gears=[2, 4])


def _pooled(**parameters: Any) -> Any:
    batch = _batch()
    signature = (TensorSpec((batch, 7), INTS, "cpu"), TensorSpec((batch, 7), FLOATS), 1)
    return _cached(input_signature=signature, **parameters)


IDS, MASK = torch.ones(2, 7, dtype=INTS), torch.ones(2, 7)
WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "dtype": (
        (IDS.int(), MASK),
        r"`Net\.pooled`: argument `ids` is of dtype torch\.int32; allowed: dtype torch\.int64",
    ),
    "rank": ((IDS, MASK[0]), r"argument `mask` is of rank 1; allowed: rank 2.*shape \(batch, 7\)"),
    "size": ((IDS, MASK[:, :5]), r"argument `mask` is of shape \(2, 5\); allowed: shape \(batch, 7\)"),
    "device": ((IDS.to("meta"), MASK), r"argument `ids` is on device meta; allowed: device cpu"),
    "none": ((IDS, None), r"argument `mask` is None; allowed: a tensor of torch\.float32"),
    "number": ((IDS, MASK, 2), r"argument `scale` is 2; allowed: 1, as its spec says"),
    "bool": ((IDS, MASK, True), r"argument `scale` is True; allowed: 1"),
}


def test_another_call_is_refused_before_anything_is_compiled(cache_dir: Path, subtests: pytest.Subtests) -> None:
    batch = _batch()
    cached = gearcache.cache_compile(
        Net().pooled,
        config=strict_config(on_miss="compile"),
        input_signature={
            "ids": TensorSpec((batch, 7), INTS, "cpu"),
            "mask": TensorSpec((batch, 7), FLOATS),
            "scale": 1,
        },
    )
    for traces in (0, 1):  # and with graphs loaded
        for name, (call, words) in WRONG.items():
            with subtests.test(name), pytest.raises(InputError, match=words):
                cached(*call)
        assert cached.stats.traces == traces
        assert traces or not list(cache_dir.rglob("manifest*"))
        cached(IDS, MASK)
    assert (cached.stats.traces, cached.stats.refused_calls) == (1, 2 * len(WRONG))


def test_a_graph_that_another_program_made_for_another_dtype_serves_no_call(cache_dir: Path) -> None:
    """The entry is shared: the gears are those of `gears=`, and `on_miss` is not in the key."""
    batch = _batch()
    other = gearcache.cache_compile(
        Net().pooled, config=strict_config(on_miss="compile"), gears={"ids": (batch, 7), "mask": (batch, 7)}
    )
    other(IDS, MASK)
    other(IDS, MASK.double())
    cached = _pooled()
    cached(IDS, MASK)
    assert (cached.entry_path, cached.stats.traces) == (other.entry_path, 0)
    with pytest.raises(InputError, match=r"`mask` is of dtype torch\.float64"):
        cached(IDS, MASK.double())


def test_a_spec_without_an_example_asks_for_one() -> None:
    spec = TensorSpec((10**12, 1000), FLOATS)
    with pytest.raises(GearSpecError, match=r"no tensor can be made for `x`, declared as .* give one: `.warm\(x="):
        _cached(Net().doubled, input_signature=spec).warm()


@pytest.mark.parametrize(
    ("dim", "validate"),
    [
        pytest.param(lambda: _batch(), "gears", id="gears"),
        pytest.param(lambda: Symbol("batch"), "inputs", id="range"),
    ],
)
def test_what_is_declared_is_compiled_whatever_else_was(cache_dir: Path, dim: Any, validate: str) -> None:
    """By another binding or process, or before `set_inputs`; in any order."""
    kinds = [(2, 7, FLOATS), (2, 7, torch.float64), (2, 1, FLOATS)]
    net, config = Net(), strict_config(validate=validate)
    for round_ in range(2):
        last = gearcache.cache_compile(net.doubled, config=config)
        for rows, columns, dtype in kinds if round_ == 0 else reversed(kinds):
            signature, x = TensorSpec((dim(), columns), dtype), torch.ones(rows, columns, dtype=dtype)
            cached = gearcache.cache_compile(net.doubled, config=config, input_signature=signature)
            last.set_inputs(signature)
            for each in (cached, last):
                each.warm()
                assert torch.equal(each(x), x * 2)
                assert each(x).dtype is dtype
            assert cached.stats.traces == (1 if round_ == 0 else 0)
            if validate == "inputs":
                with pytest.raises(InputError, match=f"allowed: dtype {dtype}"):
                    cached(x.bool())


def test_an_argument_that_no_graph_reads_is_compared_on_every_call(cache_dir: Path) -> None:
    cached = _cached(input_signature=(IDS, MASK, 1, torch.zeros(3)))
    for _ in range(2):
        cached(IDS, MASK, 1, torch.zeros(3))
        with pytest.raises(InputError, match=r"`unused` is of shape \(4,\); allowed: shape \(3,\)"):
            cached(IDS, MASK, 1, torch.zeros(4))
    assert cached.stats.hits == 0


def test_warm_takes_what_is_given_and_makes_the_rest(cache_dir: Path) -> None:
    cached = _cached()
    with pytest.raises(TypeError, match=r"`Net\.pooled`: warm: got an unexpected keyword argument 'odd'$"):
        cached.warm(IDS, MASK, odd=1)
    cached.set_inputs(ids=TensorSpec((2, 7), INTS))
    with pytest.raises(TypeError, match=r"`Net\.pooled`: warm: missing a required argument: 'mask'; give it,"):
        cached.warm()
    cached.warm(mask=MASK)
    cached(IDS, MASK)
    assert cached.stats.traces == 1


def test_set_inputs_takes_effect_at_the_next_call_and_replaces_what_was_set(cache_dir: Path) -> None:
    cached = _pooled()
    cached(IDS, MASK)
    cached.set_inputs(TensorSpec((2, 7), INTS), TensorSpec((2, 7), torch.float64))
    with pytest.raises(InputError, match=r"`mask` is of dtype torch\.float32"):
        cached(IDS, MASK)
    cached(IDS, MASK.double())
    cached.set_inputs()
    cached(IDS, MASK.double())
    with pytest.raises(TypeError, match="missing a required argument"):
        cached.warm()


@pytest.mark.parametrize(
    "inputs, named, words",
    [
        ((IDS,), {}, r"does not fit `Net\.pooled\(ids: .*missing a required argument: 'mask'"),
        ((IDS,), {"mask": MASK}, "set_inputs: 1 specs are given by position and `mask` by name"),
        ((), {"ids": [IDS, {1: nn.ReLU()}]}, r"set_inputs of `ids`\[1\]\[1\] is a"),
        ((), {"ids": TensorSpec(([2, 0], 7), INTS)}, "0 is not a size"),
    ],
)
def test_specs_that_do_not_fit_the_method_are_refused(inputs: Any, named: Any, words: str) -> None:
    with pytest.raises(GearSpecError, match=words):
        _cached().set_inputs(*inputs, **named)


@pytest.mark.parametrize(
    "signature, words",
    [
        (3, "input_signature is an int; it must be a TensorSpec or an example tensor"),
        (
            {"ids": TensorSpec((2, 7), INTS)},
            "`ids`, dim 0: its spec has shape .2, 7., and gears= declares this dim too",
        ),
    ],
)
def test_a_signature_that_cannot_be_is_refused_at_cache_compile(signature: Any, words: str) -> None:
    with pytest.raises(GearSpecError, match=words):
        _cached(input_signature=signature, gears={"ids": {0: [2, 4]}})


def test_copies_and_pickles_keep_what_is_declared(cache_dir: Path) -> None:
    net = Net()
    net.cached = gearcache.cache_compile(net.pooled, config=strict_config())
    net.cached.set_inputs(TensorSpec((_batch(), 7), INTS), TensorSpec((_batch(), 7), FLOATS))
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.cached.instance is other
        with pytest.raises(InputError, match=r"allowed: dtype torch\.int64"):
            other.cached(IDS.int(), MASK)
