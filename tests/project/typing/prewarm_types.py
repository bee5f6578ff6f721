"""What type checkers make of prewarming, events and readable entries."""

from collections.abc import Callable

from typing_extensions import assert_type

import gearcache
from gearcache.prewarming.prewarm import PrewarmReport


def build() -> None: ...


report = gearcache.prewarm(build, jobs=2, ranks=[0, 1], world_size=2, dry_run=True)
assert_type(report, PrewarmReport)
assert_type(report.compiled, int)
assert_type(gearcache.add_listener(lambda event: event.seconds), Callable[[], None])
assert_type(gearcache.readable_cache("manifest.msgpack", print_output=False), str)
