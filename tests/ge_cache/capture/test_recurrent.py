"""Recurrent layers, which Dynamo leaves out unless told otherwise: right at many sizes, and with other weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from gearcache.ge_cache.eager import EagerBackend
from tests.support.sampled import sampled
from tests.support.scenarios import strict_config

LAYERS = {
    "lstm": lambda: nn.LSTM(4, 5, bidirectional=True),
    "rnn": lambda: nn.RNN(4, 5, nonlinearity="relu"),
}


class Net(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def run(self, x: Tensor) -> Any:
        return self.layer(x)


def assert_as_eager(cached: Any, net: Net, batch: int) -> None:
    x = torch.randn(2, batch, 4)  # each step adds its operations to the graph
    with torch.no_grad():
        torch.testing.assert_close(cached(x), net.run(x), rtol=0, atol=0)


#: Each layer in one of two ways.
WAYS: dict[str, dict[str, Any]] = {"lstm": {}, "rnn": {"gears": {"x": {1: [2, 3]}}}}


@pytest.mark.parametrize("name", sampled(LAYERS, ("rnn",)))
def test_a_recurrent_layer_is_right_with_the_weights_that_it_has(name: str, cache_dir: Path) -> None:
    net = Net(LAYERS[name]())
    for traces in (None, 0):
        cached = gearcache.cache_compile(net.run, config=strict_config(), **WAYS[name])
        for batch in (2, 3, 2):
            assert_as_eager(cached, net, batch)
        if traces is not None:
            assert cached.stats.traces == traces
        layer: Any = net.layer
        layer.weight_ih_l0.data.mul_(1.5)
        assert_as_eager(cached, net, 2)
        layer.weight_hh_l0 = nn.Parameter(torch.randn_like(layer.weight_hh_l0))
        assert_as_eager(cached, net, 2)
        net.load_state_dict({key: torch.randn_like(value) for key, value in net.state_dict().items()}, assign=True)
        assert_as_eager(cached, net, 3)
        layer.bias_ih_l0.data = torch.zeros_like(layer.bias_ih_l0)
        assert_as_eager(cached, net, 3)


def test_dropout_between_layers_is_refused_where_it_would_not_be_drawn_as_in_eager(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EagerBackend, "allows_random", False)  # as of Inductor
    net = Net(nn.RNN(4, 5, num_layers=2, dropout=0.5)).train()
    with pytest.raises(CaptureError, match="draws random numbers"):
        gearcache.cache_compile(net.run, config=strict_config())(torch.randn(2, 2, 4))
    net.eval()
    assert_as_eager(gearcache.cache_compile(net.run, config=strict_config()), net, 2)
