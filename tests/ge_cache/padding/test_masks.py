"""Padding behind a mask: filling that is kept out of sums by what the mask is there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

import gearcache
from gearcache.errors import GearSpecError, PaddedResultError, UnknownGear
from tests.support.sampled import examples
from tests.support.scenarios import strict_config

INF = math.inf


class Masked(torch.nn.Module):
    """A module around one function of states `(batch, length, 4)` and a mask `(batch, length)` of ints."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        return self.function(x, mask)


def _padded(function: Callable[[Tensor, Tensor], Any], x: Any = 1e4, mask: Any = 0, **options: Any) -> Any:
    # `x` is filled with what would show.
    config = strict_config(on_miss="pad", pad_values={"x": {1: x}, "mask": {1: mask}})
    length = gearcache.Symbol("length", gears=[6, 9])
    gears = {"x": {1: length}, "mask": {1: length}}
    return gearcache.cache_compile(Masked(function).forward, config=config, gears=gears, **options)


def _arguments(length: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed * 100 + length)
    mask = (torch.rand(2, length, generator=generator) > 0.4).long()
    mask[:, 0] = 1
    return torch.randn(2, length, 4, generator=generator), mask


def _scores(x: Tensor) -> Tensor:
    return x @ x.transpose(1, 2)


def _by_hand(x: Tensor, mask: Tensor) -> Tensor:
    return _scores(x).masked_fill((mask == 0)[:, None, :], -INF).softmax(-1) @ x


def _in_place(x: Tensor, mask: Tensor) -> Tensor:
    scores = _scores(x)
    scores.masked_fill_(mask[:, None, :] == 0, -INF)
    return scores.softmax(-1) @ x


def _looked_up(x: Tensor, mask: Tensor) -> Tensor:
    """The way of transformers: a mask of every pair, looked up by row numbers."""
    rows, columns = torch.arange(x.size(0))[:, None, None, None], torch.arange(x.size(1)) + 0
    allowed = mask.bool()[rows, columns[None, None, None, :]] & (columns >= 0)[None, None, :, None]
    return functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], allowed).squeeze(1)


def _layer(x: Tensor, mask: Tensor) -> Tensor:
    """An encoder layer of two heads."""
    weights = torch.arange(48.0).view(3, 4, 4).sin()
    q, k, v = (functional.linear(x, weight).view(x.size(0), x.size(1), 2, 2).transpose(1, 2) for weight in weights)
    found = functional.scaled_dot_product_attention(q, k, v, (mask != 0)[:, None, None, :])
    return functional.layer_norm(x + found.transpose(1, 2).reshape(x.shape), [4])


def _heads_in_batch(x: Tensor, mask: Tensor) -> Tensor:
    """The mask of `nn.MultiheadAttention`: heads and batch are joined, and parted again."""
    batch, length = mask.shape
    hidden = torch.zeros_like(mask, dtype=x.dtype).masked_fill_(mask == 0, -INF).view(batch, 1, 1, length)
    hidden = hidden.expand(-1, 2, -1, -1).reshape(batch * 2, 1, length).view(batch, 2, -1, length)
    heads = x.view(batch, length, 2, 2).transpose(1, 2)
    return functional.scaled_dot_product_attention(heads, heads, heads, hidden).transpose(1, 2).reshape(x.shape)


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    """The pooling of sentence-transformers."""
    weights = mask.unsqueeze(-1).expand(x.size()).float()
    return functional.normalize((x * weights).sum(1) / torch.clamp(weights.sum(1), min=1e-9), dim=-1)


_SERVED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "attention, mask looked up by row numbers": _looked_up,
    "mean": _mean,
    "attention, heads in the batch": _heads_in_batch,
    "attention, a mean of a layer": lambda x, mask: _mean(_layer(x, mask), mask),
    "max": lambda x, mask: x.masked_fill(mask[..., None] == 0, -INF).amax(1),
    "einsum pooling": lambda x, mask: torch.einsum("bl,bld->bd", mask.to(x.dtype), x),
    "bits": lambda x, mask: x.masked_fill(~(mask.bool() & (x[..., 0] > 0))[..., None], 0).sum(1),
    "lengths": lambda x, mask: x[:, 0] + mask.sum(1, keepdim=True) + (mask != 0).any(1, keepdim=True),
    # The last one: after a write, nothing is known of any filling.
    "attention, masked in place": _in_place,
}


def _others(x: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """What functions without attention give: one trace, and one proof for each result."""
    return {name: function(x, mask) for name, function in _SERVED.items() if "attention" not in name}


@pytest.mark.parametrize("name", [*(name for name in _SERVED if "attention" in name), "others"])
def test_masked_filling_reaches_no_result(cache_dir: Path, name: str) -> None:
    function = _SERVED.get(name, _others)
    cached = _padded(function)
    # Of size 1, its heads trace to something else.
    for seed, length in enumerate((6, 4, 7, 5 if "heads" in name else 1, 5)):
        arguments = _arguments(length, seed=seed)
        found, expected = cached(*arguments), function(*arguments)
        for left, right in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5)
            assert left.stride() == right.stride()
    assert cached.stats.traces <= 4


def _multiplied_in_place(x: Tensor, mask: Tensor) -> Tensor:
    states = x.sin()
    view = states.view(x.shape)
    states.mul_(mask[..., None])
    return view.nan_to_num()[:, 0] + states.sum(1)


_FINITE = -1e9
_REFUSED: list[Any] = [
    pytest.param(_by_hand, {"mask": 1}, "gives filling a weight", id="filled with 1"),
    pytest.param(
        lambda x, m: functional.scaled_dot_product_attention(x, x, x) * m[..., None], {}, "attends over", id="sdpa"
    ),
    pytest.param(
        lambda x, m: _scores(x).masked_fill((m == 0)[:, None, :], _FINITE).softmax(-1) @ x,
        {},
        "gives filling a weight",
        id="a finite score: a row that is masked throughout is a mean",
    ),
    pytest.param(lambda x, m: (x * m[..., None]).mean(1), {}, "reduces over", id="mean of what is masked"),
    pytest.param(lambda x, m: (x * m[..., None]).sum(1) / x.size(1), {}, "as a number", id="divided by the length"),
    pytest.param(
        lambda x, m: (x * m[:, (torch.arange(x.size(1)) * m[0])][..., None]).sum(1), {}, "looks rows of", id="chosen"
    ),
    pytest.param(lambda x, m: _mean(x, m).nan_to_num(), {}, "could hide", id="NaN made a number"),
    pytest.param(_multiplied_in_place, {}, "writes what masked filling", id="multiplied in place"),
    pytest.param(
        lambda x, m: functional.scaled_dot_product_attention(
            x, x, x, (x[..., 0] * m).cumsum(1)[:, None] + torch.where(m == 0, -INF, 0.0)[:, None]
        ),
        {},
        "not linear layers of one",
        id="a mask that may be NaN",
    ),
]


@pytest.mark.parametrize(("function", "fills", "message"), _REFUSED)
def test_what_a_mask_does_not_keep_apart_is_refused(
    cache_dir: Path, function: Callable[[Tensor, Tensor], Any], fills: dict[str, Any], message: str
) -> None:
    cached = _padded(function, **fills)
    with pytest.raises((GearSpecError, gearcache.CaptureError), match=message):
        cached(*_arguments(6))
    assert cached.stats.compiles == 0


def test_what_is_known_of_a_mask_is_forgotten_when_it_is_written(cache_dir: Path) -> None:
    def written(x: Tensor, mask: Tensor) -> Tensor:
        kept = mask == 0
        view = kept.view(kept.shape)
        kept.logical_not_()
        return x.masked_fill(view[..., None], 0).sum(1)

    with pytest.raises(GearSpecError, match="reduces over"):
        _padded(written)(*_arguments(6))


def test_filling_that_no_mask_can_hide_is_an_error(cache_dir: Path) -> None:
    cached = _padded(_mean, x=-INF)
    with pytest.raises(PaddedResultError, match=r"padded from .*=5.* to gear .*=6.*, a result holds NaN"):
        cached(*_arguments(5))
    # Nothing is decided for good: another call is looked at anew.
    assert torch.equal(cached(*_arguments(6)), _mean(*_arguments(6)))


def test_a_plan_that_rests_on_the_filling_serves_that_filling_only(cache_dir: Path) -> None:
    arguments = _arguments(5)
    torch.testing.assert_close(_padded(_by_hand)(*arguments), _by_hand(*arguments))
    torch.testing.assert_close(_padded(_by_hand, x=3.0)(*arguments), _by_hand(*arguments))  # x may be anything
    relaunched = _padded(_by_hand, mask=1)
    with pytest.raises(UnknownGear, match="is padded only where pad_values of `mask` is 0"):
        relaunched(*arguments)


def test_sizes_that_are_taken_for_equal_are_equal(cache_dir: Path) -> None:
    """Nothing in the method compares the batch of the mask with that of `x`: it looks the mask's rows up."""

    def forward(x: Tensor, mask: Tensor) -> Tensor:
        return x * mask[torch.arange(x.size(0))][..., None]

    config = strict_config(on_miss="pad", pad_values={"x": 0.0, "mask": 0})
    batch = gearcache.Symbol("batch", gears=[2, 4])
    gears = {"x": {0: batch}, "mask": {0: batch}}
    cached = gearcache.cache_compile(Masked(forward).forward, config=config, gears=gears)
    for size in (3, 1, 4):
        x, mask = torch.randn(size, 5, 4), torch.randint(0, 2, (size, 5))
        assert torch.equal(cached(x, mask), forward(x, mask))
    with pytest.raises(UnknownGear):
        cached(torch.randn(3, 5, 4), torch.ones(1, 5, dtype=torch.long))


#: Some of the operators that are taken to carry a NaN, of each kind.
_CARRY_NAN: dict[str, Callable[[Tensor], Tensor]] = {
    "pow": lambda x: x.pow(2),
    "where": lambda x: torch.where(torch.ones(4, 16) > 0, x, 0.0),
    "linear": lambda x: functional.linear(x, torch.ones(16, 16).tril(), torch.ones(16)),
    "layer_norm": lambda x: functional.layer_norm(x, [16]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, torch.ones(5, 16)),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "softmax": lambda x: x.softmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "mean": lambda x: x.mean(-1),
    "amax": lambda x: x.amax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "clamp": lambda x: x.clamp(0.5),
    "minimum": lambda x: torch.minimum(x, torch.zeros(16)),
    "relu": lambda x: x.relu(),
    "gelu": lambda x: functional.gelu(x),
}


@pytest.mark.parametrize("name", _CARRY_NAN)
def test_what_reads_a_nan_gives_nan_or_what_it_would_have_given(name: str) -> None:
    function, x = _CARRY_NAN[name], torch.rand(4, 16, generator=torch.Generator().manual_seed(1))
    for spoiled in (x > 0.9, torch.arange(64).view(4, 16) == 17, x >= 0):
        found = function(x.masked_fill(spoiled, math.nan))
        assert bool((found.isnan() | torch.isclose(found, function(x))).all())
        assert bool(found.isnan().any())


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=str)
@pytest.mark.parametrize(("length", "dtype"), [(17, torch.float32), (70, torch.float16)], ids=str)
def test_attention_over_nan_gives_nan_or_what_it_would_have_given(
    length: int, dtype: torch.dtype, backend: SDPBackend
) -> None:
    """Filling that is not finite behind a mask, in query, key and value, or in some of them."""
    real = length - 2
    mask = (torch.rand(2, 1, 1, length) > 0.3) & (torch.arange(length) < real)
    mask[0, ..., 0] = True
    mask[1] = False
    mask = mask.expand(2, 1, length, length)
    tensors = [torch.randn(2, 2, length, 8).to(dtype) for _ in range(3)]
    with sdpa_kernel(backend):
        expected = functional.scaled_dot_product_attention(*tensors, mask)[:, :, :real]
        for value, spoiled in itertools.product((math.nan, INF, -INF), ("qkv", "qk", "qv", "k", "v")):
            given = [tensor.clone() for tensor in tensors]
            for name, tensor in zip("qkv", given, strict=True):
                if name in spoiled:
                    tensor[:, :, real:] = value
            found = functional.scaled_dot_product_attention(*given, mask)[:, :, :real]
            assert bool((found.isnan() | torch.isclose(found, expected, rtol=2e-2, atol=2e-2)).all())


_STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "attend": _by_hand,
    "attend to all": lambda x, mask: _scores(x).softmax(-1) @ x,
    "look up": _looked_up,
    "layer": _layer,
    "hide": lambda x, mask: x * mask[..., None],
    "total": lambda x, mask: x + x.sum(1, keepdim=True),
    "mean": lambda x, mask: x + _mean(x, mask)[:, None],
    "first": lambda x, mask: x - x[:, :1],
    "reverse": lambda x, mask: x.flip(1),
    "turn": lambda x, mask: x.transpose(1, 2).movedim(1, 2) + torch.einsum("bld,bld->bl", x, x)[..., None],
    "clean": lambda x, mask: x.nan_to_num(),
}


@pytest.mark.slow
@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(sorted(_STEPS)), min_size=1, max_size=3), length=st.integers(2, 8))
def test_what_the_proof_admits_never_depends_on_masked_filling(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], length: int
) -> None:
    def chain(x: Tensor, mask: Tensor) -> Tensor:
        for step in steps:
            x = torch.tanh(_STEPS[step](x, mask))
        return x

    arguments = _arguments(length)
    for fill in (0.0, 1e6):
        cached = _padded(chain, x=fill, cache_dir=tmp_path_factory.mktemp("chain"))
        try:
            found = cached(*arguments)
        except (GearSpecError, UnknownGear, PaddedResultError):
            return
        assert torch.allclose(found, chain(*arguments), rtol=1e-4, atol=1e-5), (steps, length, fill)
