"""Shapes of all hosts in a tier: what processes tell, what is summed, and the gears that are proposed."""

from __future__ import annotations

import gc
import logging
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.cache.layout import Layout
from gearcache.cache.remote.protocol import Deadline
from gearcache.cache.remote.shapes import MethodShapes, ProcessShapes, ShapesTier
from gearcache.cache.remote.tier import open_tiers
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.urls import parse_urls
from gearcache.errors import GearSpecError
from gearcache.guards.gears.parse import parse_gears
from gearcache.telemetry import shared_shapes
from gearcache.telemetry.fleet_gears import propose, summed
from gearcache.telemetry.shared_shapes import SharedShapes, Told
from gearcache.telemetry.told_shapes import ToldShapes
from tests.support.commands import run, run_json
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config

DIMS = (("x", 0),)


class Net(nn.Module):
    def double(self, x: Tensor) -> Tensor:
        return x * 2


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x))


@pytest.fixture
def tier(tmp_path: Path) -> ShapesTier:
    (tmp_path / "shapes").mkdir()
    (found,) = open_tiers(parse_urls([f"folder:{tmp_path}/shapes?unsigned=1"], "test"), Layout(tmp_path / "reader"))
    return ShapesTier(found, Trust())


@pytest.fixture
def shared(tier: ShapesTier, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedShapes]:
    """What this process tells, as it does where the variable is set; its thread has nothing to do meanwhile."""
    made = SharedShapes(lambda: tier)
    monkeypatch.setattr(shared_shapes, "_shared", made)
    monkeypatch.setenv(shared_shapes.VARIABLE, "folder:/not/asked?unsigned=1")
    yield made
    made.stop()


def met(tier: ShapesTier) -> dict[str, dict[tuple[int, ...], int]]:
    """The shapes that all processes told, by method."""
    return {row.method: row.shapes for row in summed(tier.latest(Deadline.after(20)))}


def test_what_a_method_meets_is_told_once(shared: SharedShapes, tier: ShapesTier, cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.double, config=strict_config(on_miss="eager"), gears={"x": {0: [2, 4]}})
    for size in (2, 2, 4, 3):
        cached(torch.ones(size))
    assert shared.send()
    assert met(tier) == {"Net.double": {(2,): 2, (4,): 1, (3,): 1}}
    before = tier.names(Deadline.after(20))
    assert shared.send()
    assert tier.names(Deadline.after(20)) == before, "nothing is new"
    cached(torch.ones(3))
    cached.refresh()  # its counters begin anew
    cached(torch.ones(4))
    assert shared.send()
    assert met(tier)["Net.double"][(4,)] == 2
    assert len(tier.names(Deadline.after(20))) == 1
    ((told,),) = (each.methods for each in tier.latest(Deadline.after(20)))
    assert (told.dims, told.gears) == ((("x", 0),), ((2,), (4,)))


def test_what_was_met_before_a_binding_is_dropped_is_told(
    shared: SharedShapes, tier: ShapesTier, cache_dir: Path
) -> None:
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    net = Linear()
    cached = gearcache.cache_compile(net.forward, config=config, gears={"x": {0: [2, 4]}})
    x = torch.ones(2, 3)
    cached(x)
    cached.refresh()
    cached(x)
    net.layer.weight = nn.Parameter(torch.ones(3, 3))
    cached(x)
    net.layer = nn.Linear(3, 3)
    cached(x)
    cached(torch.ones(3, 3))
    net.double()
    cached(x.double())
    net.layer.register_forward_hook(lambda *_: None)
    cached(x.double())
    model = weakref.ref(net)
    del cached, net
    gc.collect()
    assert model() is None, "counts keep no model"
    assert shared.send()
    assert met(tier) == {"Linear.forward": {(2,): 6, (3,): 1}}
    assert shared.send()
    assert not shared._sources, "what is told of those that are gone is let go"


def test_a_prewarm_tells_nothing(shared: SharedShapes, tier: ShapesTier, cache_dir: Path) -> None:
    def build() -> None:
        gearcache.cache_compile(Net().double, config=strict_config(), gears={"x": {0: [2]}})(torch.ones(2))

    gearcache.prewarm(build)
    assert shared.send()
    assert met(tier) == {}


def test_a_source_that_changes_while_it_is_read_is_read_the_next_time(shared: SharedShapes, tier: ShapesTier) -> None:
    class Source:
        is_changing = True

        def shapes_told(self) -> Any:
            if self.is_changing:
                raise RuntimeError("dictionary changed size during iteration")
            return Told("Net.double", "a.Net.double", DIMS, ()), {(2,): 3}

    changing, other = Source(), Source()
    other.is_changing = False
    shared.follow(changing, changing)
    shared.follow(other, other)
    assert shared.send()
    assert met(tier) == {"Net.double": {(2,): 3}}
    changing.is_changing = False
    assert shared.send()
    assert met(tier) == {"Net.double": {(2,): 6}}


def test_a_tier_that_fails_costs_one_warning(cache_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> ShapesTier:
        raise RuntimeError("no tier")

    shared = SharedShapes(fail)
    cached = gearcache.cache_compile(Net().double, config=strict_config(), gears={"x": {0: [2]}})
    cached(torch.ones(2))
    (binding,) = cached._bindings
    shared.follow(ToldShapes("Net.double", "a.Net.double", binding._record.shapes), binding)
    with caplog.at_level(logging.WARNING, logger="gearcache"):
        assert [shared.send(), shared.send()] == [False, False]
    assert [record.message for record in caplog.records] == [
        "GEARCACHE_SHAPES: the shapes that were met cannot be told: RuntimeError: no tier"
    ]
    assert torch.equal(cached(torch.ones(2)), torch.full((2,), 2.0))


PROCESS = """
import os, torch, gearcache
from tests.telemetry.test_shared_shapes import Net
net = Net()
cached = gearcache.cache_compile(net.double, config=gearcache.CompilerConfig(backend="eager", on_miss="pad",
    pad_values={"x": 0.0}), gears={"x": {0: [8]}})
for size in (3, 3, 5):
    cached(torch.ones(size))
if (child := os.fork()) == 0:
    cached(torch.ones(5))
    from gearcache.telemetry import shared_shapes
    shared_shapes._shared.stop()
    os._exit(0)
os.waitpid(child, 0)
print("{}")
"""


def test_a_process_tells_at_its_end_and_its_child_only_its_own(
    tier: ShapesTier, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"folder:{tmp_path}/shapes?unsigned=1"
    run_python(PROCESS, environ={"GEARCACHE_SHAPES": url, "TORCHAIR_CACHE_HOME": str(cache_dir)})
    assert met(tier) == {"Net.double": {(3,): 2, (5,): 2}}
    assert len(tier.latest(Deadline.after(20))) == 2
    monkeypatch.setenv("GEARCACHE_SHAPES", url)
    (row,) = run_json("suggest-gears")["methods"]
    assert (row["method"], row["calls"], row["processes"], row["hosts"]) == ("Net.double", 4, 2, 1)
    assert row["proposed"]["sizes"] == [{"dim": "x.size(0)", "sizes": [5]}]
    assert row["proposed"]["saved"] == round(1 - 5 / 8, 4)
    text = run("suggest-gears", "Net.*", "--gears", "2").stdout
    assert "  gears={'x': {0: [3, 5]}}\n" in text
    assert "now: 1 gear, 50.0% is padding; the proposed ones compute 50.0% less" in text
    told = run("suggest-gears", "Other.*", code=1).stderr
    assert "nothing was told of `Other.*`" in told
    (pruned,) = run_json("prune", "--remote", url, "--older-than", "0s", "--grace", "0s", "--dry-run")["tiers"]
    assert len(pruned["shapes"]) == 2
    refused = run_json("suggest-gears", "--from", f"folder:{tmp_path}/shapes", code=1)
    assert (refused["methods"], len(refused["refused"])) == ([], 2)


def test_who_names_no_tier_is_told(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEARCACHE_SHAPES", raising=False)
    assert "give --from, or set $GEARCACHE_SHAPES" in run("suggest-gears", code=2).output
    url = f"folder:{tmp_path}/gone?unsigned=1"
    assert "200 is not in the range 1<=x<=100" in run("suggest-gears", "--from", url, "--gears", "200", code=2).output
    monkeypatch.setattr("gearcache.cache.remote.persistence.PAUSES", ())
    gone = run_json("suggest-gears", "--from", f"folder:{tmp_path}/gone?unsigned=1", code=1)
    assert len(gone["problems"]) == 1


def of(*rows: MethodShapes, created: float = 1.0, host: str = "a" * 16) -> ProcessShapes:
    return ProcessShapes(host, os.urandom(8).hex(), 1, created, rows)


def method(
    shapes: dict[tuple[int, ...], int], gears: Any = ((4,), (8,)), dims: Any = DIMS, full_name: str = "a.Net.double"
) -> MethodShapes:
    return MethodShapes("Net.double", dims, gears, shapes, full_name=full_name)


def test_hosts_are_summed_by_class_and_gears() -> None:
    found = summed(
        [
            of(method({(3,): 1, (5,): 2}), created=2.0),
            of(method({(3,): 4}), created=1.0, host="b" * 16),
            of(method({(90,): 6}, gears=((64,), (128,)))),
            of(method({(90,): 5}, full_name="b.Net.double")),
            of(method({(3, 1): 1}, gears=(), dims=(("x", 0), ("x", 1)))),
        ]
    )
    assert [(row.calls, row.processes, len(row.hosts), row.gears) for row in found] == [
        (7, 2, 2, ((4,), (8,))),
        (6, 1, 1, ((64,), (128,))),
        (5, 1, 1, ((4,), (8,))),
        (1, 1, 1, ()),
    ]
    assert found[0].shapes == {(3,): 5, (5,): 2}


def test_a_proposal_says_what_it_saves() -> None:
    (row,) = summed([of(method({(3,): 10, (6,): 5, (20,): 2}))])
    proposal = propose(row)
    assert proposal.found.sizes == {"x.size(0)": [6, 20]}
    assert proposal.unserved == 2, "size 20 fits into no gear of today"
    assert (proposal.work_now, proposal.work_then) == (10 * 4 + 5 * 8, 10 * 6 + 5 * 6)
    assert proposal.padded_now == 1 - (10 * 3 + 5 * 6) / 80
    assert proposal.saved == 1 - 90 / 80
    three = propose(row, 3)
    assert three.found.sizes == {"x.size(0)": [3, 6, 20]}
    assert three.saved == 1 - 60 / 80


def test_many_shapes_and_strange_ones_are_bounded() -> None:
    many = {(size,): 1 + (size <= 3) for size in range(1, 1000)}
    (row,) = summed([of(method(many))])
    proposal = propose(row, 4)
    assert proposal.left_out == row.calls - sum(sorted(many.values(), reverse=True)[:400])
    (row,) = summed([of(method({(0,): 3}))])
    with pytest.raises(GearSpecError):
        propose(row)


def test_the_largest_shape_is_told_however_rare(tier: ShapesTier) -> None:
    many = {(size,): 2 for size in range(1, 701)} | {(1000,): 1}
    tier.send(of(method(many, gears=((512,), (1024,)))), "", Deadline.after(20))
    (row,) = summed(tier.latest(Deadline.after(20)))
    assert (len(row.shapes), row.calls, row.shapes[1000,]) == (512, 1401, 1)
    assert propose(row).found.sizes["x.size(0)"][-1] == 1000, "what today's gears hold, the proposed ones hold"


def test_shapes_without_a_call_hide_nothing(tier: ShapesTier) -> None:
    (row,) = summed([of(method({(3,): 5, (5,): 0}))])
    assert propose(row).found.sizes == {"x.size(0)": [3]}
    tier.send(of(method({(3,): 5, (5,): 0})), "", Deadline.after(20))
    (row,) = summed(tier.latest(Deadline.after(20)))
    assert row.shapes == {(3,): 5}


def test_gears_of_today_stay_where_others_save_nothing() -> None:
    (row,) = summed([of(method({(4,): 9, (8,): 1}))])
    assert propose(row).keeps
    assert not propose(row, 1).keeps, "fewer were asked for"
    (row,) = summed([of(method({(4,): 9, (9,): 1}))])
    assert not propose(row).keeps, "a call fits into none of today"
    (row,) = summed([of(method({(4,): 9, (8,): 1, (0,): 90}))])
    proposal = propose(row)
    assert (proposal.work_now, proposal.left_out) == (9 * 4 + 8, 90), "calls without rows are no work"


def test_methods_of_one_name_are_told_apart(tier: ShapesTier, tmp_path: Path, cache_dir: Path) -> None:
    pairs = (("x", 0), ("x", 1))
    rows = [
        method({(3, 9): 2, (5, 5): 1, (5, 9): 1}, gears=(), dims=pairs),
        method({(90,): 2}, gears=((90,),), full_name="b.Net.double"),
        method({(60,): 1}, gears=((64,), (128,)), full_name="b.Net.double"),
    ]
    assert tier.send(of(*rows), "", Deadline.after(20))
    url = f"folder:{tmp_path}/shapes?unsigned=1"
    text = run("suggest-gears", "--from", url, "--gears", "4").stdout
    lines = text.splitlines()
    assert lines[0].startswith("Net.double (a.Net.double): 4 calls of 3 shapes")
    assert lines[1:4] == [
        '  n0 = Symbol("n0", gears=[3, 5])',
        '  n1 = Symbol("n1", gears=[5, 9])',
        "  gears={'x': {0: n0, 1: n1}}",
    ]
    assert "Net.double (b.Net.double) with gears x.size(0): [90]: 2 calls of 1 shape" in text
    assert "  now: 1 gear, 0.0% is padding; keep them: no others were found that save anything" in lines
    assert "Net.double (b.Net.double) with gears x.size(0): [64, 128]: 1 call of 1 shape" in text
    first, second, third = run_json("suggest-gears", "*.Net.double", "--from", url, "--gears", "4")["methods"]
    pasted = eval(first["proposed"]["gears"], {"Symbol": gearcache.Symbol})  # noqa: S307 - what users paste
    assert len(parse_gears(pasted).gears) == 4
    assert (second["keeps"], second["proposed"], third["sizes_now"]) == (True, None, [[64], [128]])
