"""A module that differs from a stored one only where the method does not reach needs no trace."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.layout import Layout
from gearcache.cache.limits import Limits
from gearcache.cache.upkeep import keep_limits
from gearcache.serving.find.entry import Entry
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config


class Layer(nn.Module):
    """A linear layer with adapters, as libraries for low-rank adapters have it."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.low = nn.ModuleDict({name: nn.Linear(4, 2, bias=False) for name in names})
        self.high = nn.ModuleDict({name: nn.Linear(2, 4, bias=False) for name in names})
        self.scale = {name: 2.0 + len(name) for name in names}
        self.active = ["own"]

    def forward(self, x: Tensor) -> Tensor:
        out = self.base(x)
        names = self.low.keys()
        for name in self.active:
            if name not in names or name not in self.scale:
                continue
            out = out + self.high[name](self.low[name](x)) * self.scale[name]
        return out


class Model(nn.Module):
    def __init__(self, *names: str, heads: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Layer(names) for _ in range(2)])
        self.first = nn.Linear(4, 3)
        self.rest = nn.ModuleList([nn.Linear(4, 3 + number) for number in range(heads)])

    def decode(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.first(x)

    def named(self, x: Tensor) -> Tensor:
        return self.decode(x) * len(sorted(self.layers[0].low.keys())[-1])


X = torch.arange(8.0).reshape(2, 4)


def served(model: nn.Module, name: str = "decode", **options: Any) -> Any:
    """Call a method once; returns its counters. The result has to be eager's."""
    cached = gearcache.cache_compile(getattr(model, name), config=strict_config(), dynamic=False, **options)
    with torch.no_grad():
        expected = getattr(model, name)(X)
    torch.testing.assert_close(cached(X), expected, rtol=0, atol=1e-4)
    return cached


@pytest.fixture(scope="module")
def one_entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("siblings")
    assert served(Model("own", "b"), cache_dir=root).stats.traces == 1
    return root


@pytest.fixture
def stored(one_entry: Path, cache_dir: Path) -> None:
    """The cache has the entry of `Model("own", "b")`."""
    shutil.copytree(one_entry, cache_dir, dirs_exist_ok=True)


@pytest.mark.parametrize(("names", "heads"), [(("c", "own", "d", "e"), 1), (("own", "b"), 3)])
def test_what_a_method_does_not_reach_costs_no_trace(
    cache_dir: Path, stored: None, names: tuple[str, ...], heads: int
) -> None:
    cached = served(Model(*names, heads=heads))
    assert (cached.stats.hits, cached.stats.misses, cached.stats.traces) == (1, 0, 0)
    assert len(list(Layout(cache_dir).entries())) == 1
    assert "differs only where the method does not reach" in cached.explain()


def test_a_wrapped_model_is_served_by_the_entry_of_the_model(stored: None) -> None:
    assert served(nn.Sequential(Model("own", "b"), nn.Linear(3, 3))[0]).stats.traces == 0


def test_what_a_method_asks_about_others_is_compared(cache_dir: Path) -> None:
    for model in (Model("own", "b"), Model("own", "longer")):
        served(model, "named")


def _other_active(model: Any) -> None:
    model.layers[1].active = ["b"]


def _tied(model: Any) -> None:
    model.layers[0].base.weight = model.layers[1].base.weight


@pytest.mark.parametrize("change", [_other_active, _tied])
def test_what_a_method_reaches_is_compared_although_others_differ_too(
    stored: None, change: Callable[[Any], None]
) -> None:
    model = Model("own", "b", "c")
    change(model)
    cached = served(model)
    assert cached.stats.traces == 1
    assert change is not _other_active or "active[0]" in cached.explain(), "what the trace depends on"


def test_graphs_that_a_sibling_made_since_are_found(stored: None) -> None:
    one = gearcache.cache_compile(Model("own", "c").decode, config=strict_config(), dynamic=False)
    two = gearcache.cache_compile(Model("own", "d").decode, config=strict_config(), dynamic=False)
    for cached in (one, two):
        for rows in (1, 2):
            assert torch.equal(cached(X[:rows]), cached.function(X[:rows]))
    assert (one.stats.traces, two.stats.traces, two.stats.misses) == (1, 0, 0)


def test_damaged_siblings_are_no_fault_of_the_call(cache_dir: Path, stored: None) -> None:
    (manifest,) = Layout(cache_dir).entries()
    manifest.write_bytes(manifest.read_bytes()[:-20])
    cached = gearcache.cache_compile(Model("own", "c").decode, config=gearcache.CompilerConfig(backend="eager"))
    assert torch.equal(cached(X), cached.function(X))
    assert (cached.stats.traces, cached.stats.faults) == (1, 0)


def test_a_sibling_in_use_stays_and_counts_its_loads(cache_dir: Path, stored: None) -> None:
    cached = served(Model("own", "c"))
    (entry,) = Catalog(Layout(cache_dir)).entries()
    assert entry.hits == 1
    assert cached.stats.hits == 1
    keep_limits(Layout(cache_dir), Limits(1, None), ("Other", "0" * 64, ""))
    assert len(list(Layout(cache_dir).entries())) == 1


def test_loads_from_siblings_leave_nothing_behind(stored: None) -> None:
    """A program may load a graph of a sibling any number of times: for each class of an argument, for example."""
    cached = served(Model("own", "c"))
    variants = cached.binding_for(cached.call_of((X,), {}))._variants
    (active,) = variants.loaded.variants
    counts = []
    for _ in range(3):
        variants.loaded.forget()
        assert torch.equal(cached(X), cached.function(X))
        cached.prepare(cached.call_of((X,), {}))
        counts.append(sys.getrefcount(active.variant))
    assert len(set(counts)) == 1
    assert cached.stats.traces == 0


def _prewarmed(*names: str) -> Callable[[], Any]:
    def build() -> Any:
        model = Model(*names)
        model.cached = gearcache.cache_compile(
            model.decode, gears={"x": {0: [1, 2]}}, config=strict_config(), dynamic=False
        )
        for rows in (2, 1):
            model.cached.warm(X[:rows])

    return build


def test_a_prewarm_stores_once_what_a_sibling_serves_for_hosts_that_lack_the_sibling(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted: list[int] = []
    adopt = Entry.adopt
    monkeypatch.setattr(
        Entry, "adopt", lambda self, variants, present: adopted.append(len(variants)) or adopt(self, variants, present)
    )
    assert gearcache.prewarm(_prewarmed("own", "b")).compiled == 2
    before = set(Layout(cache_dir).entries())
    ready = gearcache.prewarm(_prewarmed("own", "c"), dry_run=True)
    assert (ready.is_complete, ready.missing, set(Layout(cache_dir).entries())) == (True, 0, before)
    report = gearcache.prewarm(_prewarmed("own", "c"))
    assert (report.is_complete, report.compiled, report.failed) == (True, 0, 0)
    assert len(set(Layout(cache_dir).entries()) - before) == 1
    assert adopted == [2]
    for manifest in before:
        shutil.rmtree(manifest.parent)
    assert served(Model("own", "c"), gears={"x": {0: [1, 2]}}).stats.traces == 0


PROGRAM = """
import json, sys
import torch
from tests.serving.find.test_siblings import X, Model, served
before = "torch._dynamo" in sys.modules
cached = served(Model("own", sys.argv[1]), cache_dir=sys.argv[2])
stats = cached.stats
print(json.dumps([stats.hits, stats.traces, stats.compiles, "torch._dynamo" in sys.modules and not before]))
"""


@pytest.mark.slow
def test_a_relaunch_by_a_sibling_imports_no_compiler(tmp_path: Path) -> None:
    assert run_python(PROGRAM, "b", str(tmp_path), compiles=True)[:3] == [0, 1, 1]
    assert run_python(PROGRAM, "c", str(tmp_path)) == [1, 0, 0, False]
