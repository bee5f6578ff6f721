"""Which memory a result has: its own, or that of an argument, as in eager, whatever shared memory in the trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from tests.support.scenarios import strict_config


class Dropped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Any:
        kept = self.drop(x)
        kept.mul_(3.0)
        return kept.view(-1), kept


class Parts(torch.nn.Module):
    def part(self, x: Tensor, y: Tensor) -> Any:
        total = x.exp() + y
        return y.reshape(-1), total

    def rows(self, x: Tensor, y: Tensor) -> Any:
        return x[0] + y[1], x[1:], y[1:]


def _owners(results: Any, arguments: list[Tensor]) -> list[Any]:
    """Return of each result its layout, which arguments it is, and which it shares memory with."""
    return [
        (
            tuple(result.shape),
            result.stride(),
            [result is argument for argument in arguments],
            [result is other for other in (results if isinstance(results, tuple) else (results,))],
            [result.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr() for argument in arguments],
        )
        for result in (results if isinstance(results, tuple) else (results,))
    ]


def _assert_eager(served: Any, method: Callable[..., Any], arguments: Callable[[], list[Tensor]]) -> None:
    mine, others = arguments(), arguments()
    found, expected = served(*mine), method(*others)
    assert _owners(found, mine) == _owners(expected, others)
    torch.testing.assert_close((found, mine), (expected, others), rtol=0, atol=0)


def test_dropout_that_drops_nothing_gives_what_it_gives_in_eager(tmp_path: Path) -> None:
    method = Dropped().eval().forward
    served: Any = gearcache.cache_compile(method, cache_dir=tmp_path, config=strict_config())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            _assert_eager(served, method, lambda: [torch.arange(12.0).view(3, 4)])


@pytest.mark.parametrize(("name", "dynamic"), [("part", True), ("rows", False)])
def test_arguments_that_share_memory_at_the_first_call_need_not_at_the_next(
    name: str, dynamic: bool, tmp_path: Path
) -> None:
    method = getattr(Parts(), name)
    served: Any = gearcache.cache_compile(method, cache_dir=tmp_path, dynamic=dynamic, config=strict_config())

    def together() -> list[Tensor]:
        x = torch.arange(12.0).view(3, 4)
        return [x, x[:]]

    with torch.no_grad():
        _assert_eager(served, method, together)
        _assert_eager(served, method, lambda: [torch.zeros(3, 4), torch.ones(3, 4)])
        _assert_eager(served, method, together)


class Again(torch.nn.Module):
    def real(self, x: Tensor) -> Any:
        y = x * 2.0
        flat = y.flatten()
        return y, flat, flat.real, x.t(), x.t()

    def argument(self, x: Tensor) -> Any:
        part = x[1:]
        return part, part.real, part.resolve_conj(), x.real


@pytest.mark.parametrize(("name", "dynamic"), [("real", True), ("argument", False)])
def test_a_view_that_is_two_results_is_one_object(name: str, dynamic: bool, tmp_path: Path) -> None:
    method = getattr(Again(), name)
    served: Any = gearcache.cache_compile(method, cache_dir=tmp_path, dynamic=dynamic, config=strict_config())
    with torch.inference_mode():
        _assert_eager(served, method, lambda: [torch.arange(12.0).view(3, 4)])


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        memory = torch.arange(8.0)
        self.register_buffer("low", memory[:6])
        self.register_buffer("high", memory[2:])

    def taken(self, x: Tensor) -> Any:
        return self.low[1:] * x, self.high[1:]  # type: ignore[index]


def test_buffers_that_share_memory_when_traced_need_not_later(tmp_path: Path) -> None:
    model = Tied()
    served: Any = gearcache.cache_compile(model.taken, cache_dir=tmp_path, config=strict_config())
    with torch.no_grad():
        _assert_eager(served, model.taken, lambda: [torch.ones(5)])
        model.high = torch.arange(8.0)[2:] + 50
        _assert_eager(served, model.taken, lambda: [torch.ones(5)])
        model.high.set_(torch.arange(8.0) - 50, 2, (6,))
        found, expected = served(torch.ones(5)), model.taken(torch.ones(5))
    assert found[1].data_ptr() == expected[1].data_ptr()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


class Placed(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x.as_strided((2, 2), (1, 2), 0)

    def taken(self, x: Tensor) -> Any:
        return x.as_strided((2, 2), (1, 2)), x.as_strided((2, 2), (1, 2), 0) * 1


def test_a_view_at_a_place_of_the_storage_is_refused_as_a_result(tmp_path: Path) -> None:
    model, x = Placed(), torch.arange(20.0)[5:]
    refused: Any = gearcache.cache_compile(model.forward, cache_dir=tmp_path, config=strict_config())
    with pytest.raises(gearcache.errors.CaptureError, match=r"`as_strided` with a storage offset.*clone"):
        refused(x)
    served: Any = gearcache.cache_compile(model.taken, cache_dir=tmp_path, config=strict_config())
    torch.testing.assert_close(served(x), model.taken(x), rtol=0, atol=0)


class Looked(torch.nn.Module):
    """The kernel lays out what it looks up by transposed indices otherwise than a trace says."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(20.0).view(10, 2))

    def forward(self, ids: Tensor) -> Any:
        rows = self.table[ids.t()]
        return rows, rows[0], rows.select(1, 1)

    def flat(self, ids: Tensor) -> Tensor:
        return self.table[ids.t()].flatten(0, 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_view_of_a_result_is_that_of_eager_whatever_the_layout_of_the_result(dynamic: bool, tmp_path: Path) -> None:
    model, ids = Looked(), torch.arange(6).view(2, 3)
    served: Any = gearcache.cache_compile(model.forward, cache_dir=tmp_path, config=strict_config(), dynamic=dynamic)
    for _ in range(2):
        found, expected = served(ids), model(ids)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        found[0].zero_()
        assert not any(view.any() for view in found)
    flat: Any = gearcache.cache_compile(model.flat, cache_dir=tmp_path, config=strict_config(), dynamic=dynamic)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # recorded after dispatch
        torch.testing.assert_close(flat(ids), model.flat(ids), rtol=0, atol=0)


def _put(cache: Tensor, x: Tensor) -> None:
    cache[: len(x)].copy_(x)


class Putting(torch.nn.Module):
    def forward(self, cache: Tensor, x: Tensor) -> Tensor:
        torch.ops.gearcache_tests.put(cache, x)
        return x + 1


def test_a_write_of_an_operator_that_raises_no_version_is_seen(tmp_path: Path) -> None:
    library = torch.library.Library("gearcache_tests", "FRAGMENT")
    library.define("put(Tensor(a!) cache, Tensor x) -> ()")
    library.impl("put", _put, "CPU")
    torch.library.register_fake("gearcache_tests::put", lambda cache, x: None, lib=library)
    served: Any = gearcache.cache_compile(Putting().forward, cache_dir=tmp_path, config=strict_config())
    cache = torch.zeros(4)
    served(cache, torch.ones(2))
    assert cache.tolist() == [1, 1, 0, 0]
    with pytest.raises(gearcache.errors.InputError, match=r"`cache` is written, and shares memory with `x`"):
        served(cache, cache[:2])
