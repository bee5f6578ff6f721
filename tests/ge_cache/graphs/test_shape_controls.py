"""PyTorch's shape controls mean for a cached method what they mean for `torch.compile`, relaunched too."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch._dynamo import mark_dynamic

import gearcache
from gearcache.errors import CaptureError
from tests.scenarios.shapes import Net
from tests.support.scenarios import strict_config


def test_a_marked_dim_that_the_method_fixes_is_refused_by_name(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().specialised, config=strict_config(), dynamic=False)
    x = torch.ones(4, 4)
    mark_dynamic(x, 0)
    with pytest.raises(CaptureError, match=r"`Net\.specialised`.*L\['x'\]\.size\(\)\[0\]"):
        cached(x)


def test_marks_of_the_first_call_are_in_the_key(cache_dir: Path) -> None:
    paths = []
    for mark in (None, {"min": 2, "max": 8}, {"min": 2, "max": 16}):
        cached = gearcache.cache_compile(Net().scaled, config=strict_config(), dynamic=False)
        x = torch.ones(4, 4)
        if mark is not None:
            mark_dynamic(x, 0, **mark)
        cached(x)
        paths.append(cached.entry_path)
    assert len(set(paths)) == 3


def test_the_marks_of_a_caller_stay_on_its_tensor(cache_dir: Path) -> None:
    x = torch.ones(4, 4)
    mark_dynamic(x, 0, min=2, max=8)
    before = copy.deepcopy(vars(x))
    gearcache.cache_compile(Net().scaled, config=strict_config(), dynamic=False)(x)
    assert vars(x) == before


def test_dims_that_are_named_dynamic_are_in_the_key(cache_dir: Path) -> None:
    paths = set()
    for named in ("", "L['x']"):
        with torch.compiler.config.patch(dynamic_sources=named):
            cached = gearcache.cache_compile(Net().scaled, config=strict_config(), dynamic=False)
            cached(torch.ones(3, 4))
            paths.add(cached.entry_path)
    assert len(paths) == 2
