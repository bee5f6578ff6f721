"""Attributes of arguments that each call need not ask for: their class is evidence, or a check reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


class Layer:
    """A part of a key-value cache."""

    scale: Any = 2.0

    def __init__(self, offset: float) -> None:
        self.offset, self.values = offset, torch.ones(4)

    def moved(self, x: Tensor) -> Tensor:
        return x + self.offset


class OtherLayer:
    scale = 5.0

    def __init__(self) -> None:
        self.offset, self.values = 1.0, torch.ones(4)


class Net(nn.Module):
    def forward(self, x: Tensor, layer: Any) -> Tensor:
        if hasattr(layer, "moved"):
            x = layer.moved(x)
        return (x * layer.scale if hasattr(layer, "scale") else x) + layer.values.sum()


def cached_net() -> tuple[Net, Any]:
    net = Net()
    return net, gearcache.cache_compile(net.forward, config=strict_config(on_miss="compile"), dynamic=None)


def asked(cached: Any) -> set[str]:
    """Return the attributes that are asked for, by the text of the entry."""
    text = gearcache.readable_cache(cached.entry_path, print_output=False)
    return {line.strip() for line in text.splitlines() if "has_attr" in line and "layer" in line}


def test_a_call_asks_for_no_attribute_that_the_class_defines_or_a_check_reads(cache_dir: Path) -> None:
    net, cached = cached_net()
    layer = Layer(0.5)
    assert torch.equal(cached(torch.ones(4), layer), net(torch.ones(4), layer))
    assert asked(cached) == set()


@pytest.mark.parametrize(
    ("change", "is_relaunched"), [("no scale", False), ("a property", True), ("another method", True)]
)
def test_a_class_that_changes_is_seen(
    change: str, is_relaunched: bool, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, cached = cached_net()
    x, layer = torch.ones(4), Layer(0.5)
    cached(x, layer)
    if is_relaunched:
        _, cached = cached_net()
        cached(x, layer)
        assert (cached.stats.hits, cached.stats.traces) == (1, 0)
    if change == "no scale":
        monkeypatch.delattr(Layer, "scale")
    elif change == "a property":
        monkeypatch.setattr(Layer, "scale", property(lambda self: 7.0))
    else:
        monkeypatch.setattr(Layer, "moved", lambda self, x: x - self.offset)
    assert torch.equal(cached(x, layer), net(x, layer))
    assert torch.equal(cached(x, layer), net(x, layer))


def test_objects_that_lack_or_hide_what_others_have_are_told_apart(cache_dir: Path) -> None:
    net, cached = cached_net()
    x, hiding, lacking = torch.ones(4), Layer(0.5), Layer(0.5)
    hiding.scale, hiding.moved = 3.0, lambda x: x * 4  # type: ignore[method-assign]
    del lacking.values
    cached(x, Layer(0.5))
    for layer in (OtherLayer(), hiding, Layer(1.5), OtherLayer(), hiding):
        assert torch.equal(cached(x, layer), net(x, layer))
    with pytest.raises(AttributeError, match="values"):
        net(x, lacking)
    with pytest.raises(AttributeError, match="values"):
        cached(x, lacking)
