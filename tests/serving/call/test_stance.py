"""`torch.compiler.set_stance` for cached methods."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.errors import InputError, RecompileRefused
from tests.scenarios.shapes import Net
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config


@pytest.fixture(autouse=True)
def stance_is_restored() -> Iterator[None]:
    yield
    torch.compiler.set_stance("default")


def _cached(net: Net, cache_dir: Path, **parameters: object) -> gearcache.api.CachedMethod:
    return gearcache.cache_compile(net.scaled, config=strict_config(), cache_dir=cache_dir, **parameters)


def _right(net: Net, cached: gearcache.api.CachedMethod, size: int) -> bool:
    x = torch.randn(size, 4)
    with torch.no_grad():
        return torch.equal(cached(x), net.scaled(x))


def test_force_eager_runs_the_method_itself_until_the_stance_changes(cache_dir: Path) -> None:
    net = Net()

    @torch.compiler.set_stance("force_eager")
    def eager(cached: gearcache.api.CachedMethod) -> bool:
        return _right(net, cached, 3)

    with torch.compiler.set_stance("default", force_backend="eager"):
        cached = _cached(net, cache_dir)
        assert _right(net, cached, 3)
    assert eager(cached)
    assert (cached.stats.traces, cached.stats.calls) == (0, 2)
    assert _right(net, cached, 3)
    with torch.compiler.set_stance("force_eager"):
        assert _right(net, cached, 3)
        assert not cached(torch.ones(3, 4)).requires_grad
    assert (cached.stats.gears, cached.stats.calls) == ({"dynamic": 1}, 5)
    assert _right(net, cached, 5)
    assert (cached.stats.gears, cached.stats.traces) == ({"dynamic": 2}, 1)


def test_eager_on_recompile_uses_what_is_loaded_and_compiles_nothing(cache_dir: Path) -> None:
    net = Net()
    cached = _cached(net, cache_dir, dynamic=False)
    assert _right(net, cached, 3)
    with torch.compiler.set_stance("eager_on_recompile"):
        assert _right(net, cached, 3)
        assert _right(net, cached, 5)
    assert cached.stats.gears == {"x(3, 4)": 2}
    assert (cached.stats.traces, cached.stats.calls) == (1, 3)


def test_fail_on_recompile_names_the_method_and_lets_a_stored_graph_be_loaded(cache_dir: Path) -> None:
    net = Net()
    assert _right(net, _cached(net, cache_dir, dynamic=False), 3)
    torch.compiler.set_stance("fail_on_recompile")
    cached = _cached(net, cache_dir, dynamic=False)
    for _ in range(2):
        assert _right(net, cached, 3)
    with pytest.raises(RuntimeError, match=r"`Net\.scaled` would have to be compiled.*fail_on_recompile") as caught:
        cached(torch.ones(5, 4))
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), RecompileRefused)
    with pytest.raises(InputError, match="device meta"):  # it says more
        cached(torch.ones(3, 4, device="meta"))
    assert (cached.stats.traces, cached.stats.hits) == (0, 1)


RELAUNCHED = """
import json, sys, torch, gearcache
from tests.support.scenarios import strict_config
class Net(torch.nn.Module):
    def forward(self, x):
        return x * 2
net = Net()
cached = gearcache.cache_compile(net.forward, config=strict_config())
x = torch.ones(3, 4)
right = [torch.equal(cached(x), x * 2)]
imported = "torch._dynamo" in sys.modules
for stance in ("force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "default"):
    torch.compiler.set_stance(stance)
    right.append(torch.equal(cached(x), x * 2))
print(json.dumps([all(right), imported, cached.stats.traces, cached.stats.gears, cached.stats.calls]))
"""


@pytest.mark.slow
def test_a_relaunched_process_follows_a_stance_that_imports_dynamo_only_then(cache_dir: Path) -> None:
    environ = {"TORCHAIR_CACHE_HOME": str(cache_dir)}
    assert run_python(RELAUNCHED, environ=environ, compiles=True) == [True, True, 1, {"dynamic": 5}, 6]
    assert run_python(RELAUNCHED, environ=environ) == [True, False, 0, {"dynamic": 5}, 6]


def test_a_stance_that_is_refused_is_not_set(cache_dir: Path) -> None:
    net = Net()
    cached = _cached(net, cache_dir)
    with pytest.raises(gearcache.GearcacheError, match="only 'eager' is possible"):
        torch.compiler.set_stance("default", force_backend="aot_eager")
    assert _right(net, cached, 2)
    assert _right(net, _cached(net, cache_dir), 3)
