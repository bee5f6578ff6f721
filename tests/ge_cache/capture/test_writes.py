"""Writes to classes, modules and globals, which a trace does not follow, are refused; what is absent is not deleted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

COUNT = 0
HERE: Any = sys.modules[__name__]


def bump() -> None:
    global COUNT
    COUNT += 1


class Base:
    steps = 0

    @classmethod
    def up(cls) -> None:
        cls.steps += 1


class Net(nn.Module, Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.ones(2))
        self.spare = 1

    def of_its_class(self, x: Tensor) -> Tensor:
        type(self).steps += 1
        return x + self.steps

    def by_a_class_method(self, x: Tensor) -> Tensor:
        self.up()
        return x + self.steps

    def of_a_module(self, x: Tensor) -> Tensor:
        HERE.COUNT += 1
        return x + COUNT

    def of_a_global(self, x: Tensor) -> Tensor:
        bump()
        return x + HERE.COUNT

    def deleted(self, x: Tensor) -> Tensor:
        del self.spare, self.buffer
        return x + 1


def cached(name: str, net: Net, cache_dir: Path) -> Any:
    return gearcache.cache_compile(getattr(net, name), dynamic=False, cache_dir=cache_dir, config=strict_config())


@pytest.mark.parametrize("name", [name for name in vars(Net) if name.startswith(("of_", "by_"))])
def test_a_write_that_a_trace_does_not_follow_is_refused_and_changes_nothing(name: str, cache_dir: Path) -> None:
    with pytest.raises(CaptureError, match=r"it writes to .*`(steps|COUNT)`.* in an attribute of the instance"):
        cached(name, Net(), cache_dir)(torch.ones(2))
    assert (COUNT, Base.steps, "steps" in vars(Net)) == (0, 0, False)


def test_what_is_not_there_is_not_deleted_in_silence(cache_dir: Path) -> None:
    net = Net()
    served = cached("deleted", net, cache_dir)
    served(torch.ones(2))
    assert not hasattr(net, "spare")
    assert not hasattr(net, "buffer")
    with pytest.raises((CaptureError, AttributeError), match="spare"):
        served(torch.ones(2))
