"""The `inductor` backend from end to end; one fixture compiles all that these tests need."""

from __future__ import annotations

import pytest

from tests.relaunch import Outcome, cold_and_warm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEARCACHE_JOBS", "2")
        return cold_and_warm(
            "tests.models.compiled", tmp_path_factory.mktemp("inductor"), backend="inductor", tolerance=1e-5
        )


def test_gears_share_the_live_weights_and_write_the_cache_in_place(outcome: Outcome) -> None:
    outcome.assert_right("gears")


def test_one_dynamic_graph_serves_many_sizes(outcome: Outcome) -> None:
    outcome.assert_right("dynamic", traces=1)
