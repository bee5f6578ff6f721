"""Layers that do the same are compiled once, and give what the whole graph gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.ge_cache.inductor import repeated
from gearcache.ge_cache.inductor.repeated import NotMergeable
from tests.scenarios.repeated import LAYERS, Stacks
from tests.support.relaunch import Outcome, cold_and_warm
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repeated")


@pytest.fixture(scope="module")
def outcome(root: Path) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEARCACHE_JOBS", "2")
        return cold_and_warm("tests.scenarios.repeated", root, backend="inductor", tolerance=1e-5)


def test_two_stacks_of_layers_give_what_eager_gives_cold_and_relaunched(outcome: Outcome) -> None:
    outcome.assert_right("stacks")
