"""The emulated NPU is installed once, before anything imports torchair. `make test-npu` runs these tests."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

HAS_WHEEL = importlib.util.find_spec("torch_npu") is not None
if not HAS_WHEEL:
    collect_ignore_glob = ["test_*.py"]
else:
    # The wheel asks torch to import torch_npu at once, which needs CANN.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    from tests.npu.device import install

    install()
    from gearcache.ge_cache.npu.ascend import torchair_module

    torchair_module()  # from here on it is known with which precision GE is started


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """torchair and torch's private uses in it warn a lot: those warnings are not ours."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
