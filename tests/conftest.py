"""Fixtures that every test may use."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a cache that is not yet created; this process and its children find it by default."""
    root = tmp_path / ".torchair_cache"
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(root))
    return root


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests of a device that this host lacks."""
    if item.get_closest_marker("npu") and importlib.util.find_spec("torch_npu") is None:
        pytest.skip("torch_npu is not installed")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
