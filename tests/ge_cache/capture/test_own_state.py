"""A method that writes to what it reads: every call sees what the one before left behind, cold and relaunched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import gearcache
from tests.scenarios.own_state import Net
from tests.support.relaunch import Outcome, cold_and_warm
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    root: Path = tmp_path_factory.mktemp("own_state")
    limit = sys.getrecursionlimit()
    try:
        # As after `torch.compile` in this process; a relaunch never compiles. Assigning to buffers asks for the limit.
        sys.setrecursionlimit(limit + 1000)
        return cold_and_warm("tests.scenarios.own_state", root)
    finally:
        sys.setrecursionlimit(limit)


def test_a_buffer_that_the_method_assigns_is_read_anew(outcome: Outcome) -> None:
    outcome.assert_right("buffers")


def test_a_buffer_that_the_method_assigns_is_read_anew_with_dynamic_dims(outcome: Outcome) -> None:
    outcome.assert_right("buffers_under_dynamic")


def test_a_buffer_that_becomes_another_thing_is_another_variant(outcome: Outcome) -> None:
    outcome.assert_right("buffers_that_change_their_kind")


def test_children_and_parameters_that_the_method_exchanges_are_read_anew(outcome: Outcome) -> None:
    outcome.assert_right("children_and_parameters")


def test_numbers_containers_and_classes_that_the_method_writes_are_read_anew(outcome: Outcome) -> None:
    outcome.assert_right("everything_else")


def test_gears_share_the_buffer_that_the_method_assigns(outcome: Outcome) -> None:
    outcome.assert_right("buffers_and_gears")


def test_a_growing_buffer_is_one_graph_with_dynamic_dims(outcome: Outcome) -> None:
    # Dynamo takes sizes of 0 and 1 for themselves; the first trace of all finds that the buffer is replaced.
    outcome.assert_right("a_growing_buffer", traces=3)


def test_a_growing_buffer_with_static_sizes_is_a_variant_per_size(outcome: Outcome) -> None:
    outcome.assert_right("a_growing_buffer_with_static_sizes", traces=4)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("assigned_data", r"assigns to the `\.data` of `self\.weight`, which has other memory then; assign a tensor"),
        ("new_parameter", r"torch\.nn\.Parameter\(\)` constructor"),
    ],
)
def test_what_no_frame_can_replay_is_refused_with_a_way_out(method: str, words: str, cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(getattr(net, method), config=strict_config())
    with pytest.raises(gearcache.CaptureError, match=words):
        cached(torch.ones(2, 4))
