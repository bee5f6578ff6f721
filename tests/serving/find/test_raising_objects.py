"""What objects of the program raise while they are compared: they are others than in the trace, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.serving.find.evidence import EvidenceCheck
from tests.support.scenarios import strict_config

X = torch.ones(2, 3)


class Missing(Exception):
    """An attribute is missing, says a library that does not raise `AttributeError`."""


class Box:
    def __init__(self, **attributes: int) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> int:
        raise Missing(name)


class Net(nn.Module):
    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box

    def own(self, x: Tensor) -> Tensor:
        try:
            return x * self.box.level
        except Missing:
            return x * 5

    def given(self, x: Tensor, box: Box) -> Tensor:
        try:
            return x * box.level
        except Missing:
            return x * 5


def test_an_argument_that_raises_is_another_one(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net(Box()).given, config=strict_config())
    with torch.no_grad():
        for box, factor in ((Box(level=2), 2), (Box(), 5), (Box(level=2), 2), (Box(), 5)):
            assert torch.equal(cached(X, box), X * factor)


def test_a_module_that_raises_leaves_stored_variants_in_the_entry(cache_dir: Path) -> None:
    for box, traces in ((Box(level=2), 1), (Box(), 1), (Box(level=2), 0), (Box(), 0)):
        net = Net(box)
        cached = gearcache.cache_compile(net.own, config=strict_config())
        with torch.no_grad():
            assert torch.equal(cached(X), net.own(X))
        assert cached.stats.traces == traces


def test_only_data_that_cannot_be_decoded_is_deleted(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object) -> None:
        raise Missing("odd")

    config = gearcache.CompilerConfig(backend="eager")
    with torch.no_grad():
        gearcache.cache_compile(Net(Box(level=2)).own, dynamic=False, config=config)(X)
        with monkeypatch.context() as patch:
            patch.setattr(EvidenceCheck, "stale_reason", raising)
            assert torch.equal(gearcache.cache_compile(Net(Box(level=3)).own, dynamic=False, config=config)(X), X * 3)
        cached = gearcache.cache_compile(Net(Box(level=2)).own, dynamic=False, config=config)
        assert torch.equal(cached(X), X * 2)
    assert cached.stats.traces == 0
