"""`gearcache verify`: damage is told by method and gear, and a repair keeps what is sound."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.layout import Layout
from gearcache.readable.held_gears import held_gears
from tests.support.commands import DECODE, listed, run, run_json
from tests.support.scenarios import strict_config
from tests.support.stored_gears import store_gears

GEARS = [2, 3, 4, 6]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def numbered(self, x: Tensor) -> Tensor:
        """Each gear has a graph of its own: the numbers of the rows are a constant of it."""
        return self.linear(x) + torch.arange(x.size(0), dtype=x.dtype)[:, None]

    def plain(self, x: Tensor) -> Tensor:
        """All gears have one graph."""
        return self.linear(x) * 2


def cached(net: Net, name: str = "numbered", **options: object) -> gearcache.api.CachedMethod:
    return gearcache.cache_compile(getattr(net, name), config=strict_config(**options), gears={"x": {0: GEARS}})


def call_all(net: Net, method: gearcache.api.CachedMethod, name: str = "numbered") -> None:
    for rows in GEARS:
        x = torch.randn(rows, 4)
        assert torch.equal(method(x), getattr(net, name)(x)), rows


def damage(root: Path, gear: str, *, remove: bool = False) -> Path:
    """Flip a bit of a blob of a gear, or remove it; returns its path."""
    catalog = Catalog(Layout(root))
    manifests = [catalog.read(entry) for entry in catalog.entries()]
    (digests,) = [held.blobs for manifest in manifests for held in held_gears(manifest) if held.text == gear]
    path = Layout(root).blob(min(digests))
    if remove:
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    return path


@pytest.mark.parametrize(
    "remove, validate", [(False, "inputs"), (True, "gears")], ids=["flipped", "removed, without checks of inputs"]
)
def test_a_repair_keeps_the_sound_gears_and_the_next_calls_compile_the_damaged_one_alone(
    cache_dir: Path, remove: bool, validate: str
) -> None:
    net = Net()
    call_all(net, cached(net, validate=validate))
    blob = damage(cache_dir, "x.size(0)=3", remove=remove)
    result = run("verify", code=1)
    told, (entry,) = result.stdout, listed()
    assert "`gearcache verify --repair`" in result.stderr
    assert "0 of 1 entry and 3 of" in told
    assert f"incomplete: {entry['name']}: 1 of 4 gears cannot be used (gear x.size(0)=3)" in told
    if not remove:
        assert f"corrupt: {entry['name']}, gear x.size(0)=3: {blob}" in told
    done = run("verify", "--repair").stdout
    assert f"incomplete: {entry['name']}: removed gear x.size(0)=3; kept the other 3 gears" in done
    assert "1 entry and 3 blobs are sound" in done
    assert run_json("verify")["faults"] == []
    assert listed()[0]["gears"] == ["x.size(0)=2", "x.size(0)=4", "x.size(0)=6"]

    method = cached(net, validate=validate)
    call_all(net, method)
    assert (method.stats.hits, method.stats.compiles) == (1, 1)
    assert len(listed()[0]["gears"]) == 4
    again = cached(net, validate=validate)
    call_all(net, again)
    # Without checks of the inputs the second variant is loaded when a call is of its gear.
    assert (again.stats.hits, again.stats.compiles) == (1 if validate == "inputs" else 2, 0)


def test_an_entry_whose_gears_share_the_damaged_blob_goes_and_that_is_said(cache_dir: Path) -> None:
    net = Net()
    call_all(net, cached(net, "plain"), "plain")
    (blob,) = cache_dir.glob("v*/blobs/*/*")
    blob.write_bytes(b"damaged")
    done = run("verify", "--repair").stdout
    assert "removed, with 4 gears, as no gear is left without it" not in done, "all names fit"
    assert "; x.size(0)=6, as no gear is left without it: its blob" in done
    assert "0 entries and 0 blobs are sound, 0 B" in done
    assert listed() == []
    method = cached(net, "plain")
    call_all(net, method, "plain")
    assert (method.stats.hits, method.stats.compiles) == (0, 4)


def test_a_blob_that_others_may_write_costs_no_gear(cache_dir: Path) -> None:
    store_gears(cache_dir, DECODE, {"1": b"one", "2": b"two"})
    blob = next(Layout(cache_dir).blobs())
    blob.chmod(0o666)
    found = run_json("verify", "--repair", code=1)
    assert {fault["kind"] for fault in found["faults"]} == {"unsafe", "incomplete"}
    assert not any(fault["repaired"] for fault in found["faults"])
    blob.chmod(0o600)
    assert run_json("verify")["faults"] == []
    assert listed()[0]["gears"] == ["1", "2"]
