"""A prewarm of methods whose arguments are declared: a function that only makes them is enough."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

import gearcache
from gearcache import Symbol, TensorSpec
from gearcache.building.tracer import Tracer
from gearcache.cache.manifest import decode_manifest
from gearcache.guards.dispatch.stored.stored_rows import IMPOSSIBLE
from gearcache.readable.joined import covers_manifests, joined
from tests.support.scenarios import strict_config

BATCH = Symbol("batch", gears=[2, 4])
SPEC = TensorSpec((BATCH, 4), torch.float32)
GEARS = ["x.size(0)=2", "x.size(0)=4"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def run(self, x: Tensor, y: Tensor | int = 1) -> Tensor:
        return self.linear(x) * y

    def optional(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.linear(x) if y is None else self.linear(x) + y

    @gearcache.cache_compile(config=strict_config(), input_signature=SPEC)
    def decorated(self, x: Tensor) -> Tensor:
        return self.linear(x)

    @gearcache.cache_compile(config=strict_config())
    def not_declared(self, x: Tensor) -> Tensor:
        return self.linear(x)


def on_meta() -> None:
    with torch.device("meta"):
        net = Net()
    gearcache.cache_compile(net.run, config=strict_config(), input_signature=SPEC)


def test_what_is_declared_is_compiled_although_nothing_was_called(cache_dir: Path) -> None:
    missing = gearcache.prewarm(on_meta, dry_run=True)
    assert (missing.missing, missing.is_complete) == (2, False)
    report = gearcache.prewarm(on_meta)
    assert [(entry.method, sorted(entry.compiled)) for entry in report.entries] == [("Net.run", GEARS)]
    assert (report.is_complete, report.never_called) == (True, [])
    served = gearcache.cache_compile(Net().run, config=strict_config(), input_signature=SPEC)
    served(torch.randn(4, 4))
    assert (served.stats.traces, served.stats.misses) == (0, 0)


class Holding(Net):
    """A net with another one that is no part of its tree of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [{"other": Net()}]


def test_decorated_methods_of_what_is_returned_are_compiled_where_they_are_declared(cache_dir: Path) -> None:
    report = gearcache.prewarm(lambda: {"model": [(nn.Sequential(Holding()), 3)]})
    assert report.never_called == ["Holding.not_declared", "Net.not_declared"]
    assert sorted(entry.method for entry in report.entries) == ["Holding.decorated", "Net.decorated"]
    assert (report.compiled, report.failed) == (4, 0)


@pytest.mark.parametrize("world_size", [None, 2])
def test_what_was_declared_before_is_compiled_if_it_is_returned(cache_dir: Path, world_size: int | None) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.run, config=strict_config(), input_signature=SPEC)
    assert net.decorated.entry_path is None, "it is made now, and was not called"
    ranks = [None] if world_size is None else list(range(world_size))
    for returned, methods in ((cached, ["Net.run"]), (net, ["Net.decorated", "Net.run"])):
        report = gearcache.prewarm(lambda returned=returned: returned, world_size=world_size)
        found = sorted((entry.rank or 0, entry.method) for entry in report.entries)
        assert found == [(rank or 0, method) for rank in ranks for method in methods]
        assert report.compiled == 2 * len(ranks)
        assert report.is_complete


def test_a_method_that_was_called_is_not_compiled_for_its_declaration_too(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().run, config=strict_config(), input_signature=SPEC)

    def call() -> Any:
        cached(torch.zeros(2, 4), 2)
        return cached

    report = gearcache.prewarm(call)
    assert [(entry.method, sorted(entry.compiled)) for entry in report.entries] == [("Net.run", GEARS)]


def test_a_function_without_cached_methods_completes_nothing(cache_dir: Path) -> None:
    report = gearcache.prewarm(lambda: None)
    assert (report.entries, report.is_complete) == ([], False)


def test_size_one_of_an_open_dim_is_compiled_too(cache_dir: Path) -> None:
    signature = TensorSpec((BATCH, Symbol("length"), 4), torch.float32)

    def made() -> Any:
        return gearcache.cache_compile(Net().run, config=strict_config(), input_signature=signature)

    report = gearcache.prewarm(made)
    assert report.is_complete
    assert gearcache.prewarm(made, dry_run=True).missing == 0
    served = made()
    for sizes in ((2, 1, 4), (4, 1, 4), (2, 3, 4)):
        served(torch.randn(sizes))
    assert (served.stats.traces, served.stats.misses) == (0, 0)


def test_gears_of_an_argument_that_is_not_given_are_left_out(cache_dir: Path) -> None:
    gears = {"x": {0: [2, 4]}, "y": {0: [2, 4]}}
    signature = {"x": TensorSpec((None, 4), torch.float32)}
    net = Net()

    def made() -> Any:
        return gearcache.cache_compile(net.optional, config=strict_config(), input_signature=signature, gears=gears)

    assert gearcache.prewarm(made).is_complete
    served = made()
    for size in (2, 4):
        x = torch.randn(size, 4)
        assert torch.equal(served(x), net.linear(x))
    assert (served.stats.traces, served.stats.misses) == (0, 0)
    for size in (2, 4):
        x, y = torch.randn(2, size, 4)
        assert torch.equal(served(x, y), net.linear(x) + y)
        assert torch.equal(served(x), net.linear(x))
    assert served.stats.traces == 1


#: A module of the user's, where a test sets it.
one_row: Any = None
OPEN = TensorSpec((None, 4), torch.float32)


class OneRow(nn.Module):
    """Methods of an open dim, of which torch makes another trace at size 1; two of them have none."""

    def any_rows(self, x: Tensor) -> Tensor:
        return x * 2 + x.size(0)

    def more_rows(self, x: Tensor) -> Tensor:
        if x.size(0) == 1:
            raise ValueError("one row is too few")
        return x * 2

    def of_dtype(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if x.size(0) == 1 and dtype is torch.float64:
            raise ValueError("one row is too few")
        return x.to(dtype) * 2

    def helped(self, x: Tensor) -> Tensor:
        return one_row.several(x) if x.size(0) > 1 else one_row.single(x)


def prepared(method: str) -> Callable[[], None]:
    def build() -> None:
        gearcache.cache_compile(getattr(OneRow(), method), config=strict_config(), input_signature=OPEN)

    return build


def test_a_call_of_size_1_that_only_a_graph_of_more_rows_is_there_for_is_missing(cache_dir: Path) -> None:
    def calls(rows: int) -> Callable[[], None]:
        def build() -> None:
            gearcache.cache_compile(OneRow().any_rows, config=strict_config(), input_signature=OPEN).warm(
                torch.ones(rows, 4)
            )

        return build

    assert gearcache.prewarm(calls(3)).compiled == 1
    assert gearcache.prewarm(calls(5), dry_run=True).is_complete
    assert gearcache.prewarm(calls(1), dry_run=True).entries[0].missing == ["x.size(0)=1"]


def test_size_1_that_no_graph_can_be_made_of_is_not_missing_and_not_traced_again(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = prepared("more_rows")
    assert gearcache.prewarm(build, dry_run=True).entries[0].missing == ["this call", "x.size(0)=1"]
    report = gearcache.prewarm(build)
    assert (report.compiled, report.is_complete) == (1, True)
    (reason,) = report.entries[0].impossible.values()
    assert "its trace ends in an exception, ValueError" in reason
    looked_up = gearcache.prewarm(build, dry_run=True)
    assert (looked_up.is_complete, looked_up.entries[0].impossible) == (True, {"x.size(0)=1": reason})
    monkeypatch.setattr(Tracer, "capture", lambda *args, **kwargs: pytest.fail("it was traced again"))
    assert gearcache.prewarm(build).entries[0].impossible == {"x.size(0)=1": reason}


def test_what_no_graph_could_be_made_of_is_asked_for_again_after_an_edit(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "one_row.py"
    source.write_text("def several(x):\n    return x * 2\n\n\ndef single(x):\n    raise ValueError('too few')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(globals(), "one_row", importlib.import_module("one_row"))
    build = prepared("helped")
    assert "too few" in source.read_text()
    assert [list(entry.impossible) for entry in gearcache.prewarm(build).entries] == [["x.size(0)=1"]]
    assert gearcache.prewarm(build, dry_run=True).is_complete
    source.write_text(source.read_text().replace("raise ValueError('too few')", "return x * 3"))
    assert gearcache.prewarm(build, dry_run=True).entries[0].missing == ["x.size(0)=1"]
    monkeypatch.setitem(globals(), "one_row", importlib.reload(sys.modules["one_row"]))
    report = gearcache.prewarm(build)
    assert (report.compiled, report.is_complete, report.entries[0].impossible) == (1, True, {})
    monkeypatch.delitem(sys.modules, "one_row")


def test_what_is_impossible_with_one_constant_is_asked_for_with_another(cache_dir: Path) -> None:
    def of(dtype: torch.dtype) -> Callable[[], None]:
        return lambda: gearcache.cache_compile(OneRow().of_dtype, config=strict_config(), input_signature=[OPEN, dtype])

    assert [list(entry.impossible) for entry in gearcache.prewarm(of(torch.float64)).entries] == [["x.size(0)=1"]]
    report = gearcache.prewarm(of(torch.float16))
    assert (report.compiled, report.entries[0].impossible) == (2, {})
    assert gearcache.prewarm(of(torch.float64), dry_run=True).is_complete


def test_an_impossible_call_goes_with_the_entry(cache_dir: Path) -> None:
    path = Path(gearcache.prewarm(prepared("more_rows")).entries[0].entry)
    own = decode_manifest(path.read_bytes(), path)
    without = replace(own, payload={name: value for name, value in own.payload.items() if name != IMPOSSIBLE})
    assert not covers_manifests([without], own), "a tier without it gets it"
    assert covers_manifests([own], without)
    found = joined(without, [own], lambda digest, size: True)
    assert found is not None
    assert found.payload[IMPOSSIBLE] == own.payload[IMPOSSIBLE]
    assert joined(own, [without], lambda digest, size: True) is None
