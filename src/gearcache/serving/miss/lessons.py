"""What the calls of a method without a graph have shown, so that not each of them tries in vain to get one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from gearcache.serving.miss.builds import Builds
    from gearcache.serving.miss.forked_build import Report


class BackgroundBuild(Struct, frozen=True):
    """A build in the background that has begun."""

    entry_name: str
    call_likeness: Any
    #: The work text of the build, as other hosts compute it, and what sends its result to them.
    work: str
    builds: Builds
    begin: float
    #: Whether the method was refreshed since: how it ends then says nothing about calls of now.
    is_before_refresh: bool = False


class Lessons(Struct):
    """It holds until a refresh, in every state of the module."""

    #: Set when no graph can be made, for example as the cache and its fallback have failed: why the method itself then
    #: serves calls without a loaded graph, as in `EAGER_REASONS`.
    obstacle: str = ""
    #: The names of entries that are full. Another state of the module has another entry.
    full_entries: set[str] = field(default_factory=set)
    #: Builds in a row for a module that had changed before they could serve, and when the next one may begin.
    changed_builds: int = 0
    next_build: float = 0.0

    # -- with on_miss="background" -----------------------------------------------------------------------

    #: The build that was started last, and what ended builds have reported, until a call processes it.
    begun: BackgroundBuild | None = None
    reports: deque[Report] = field(default_factory=deque)
    #: The duration of the last build, and the likeness of the call for which graphs were stored last.
    seconds: float = 0.0
    stored_likeness: Any = None
    #: When calls for which no graph could be made may be tried again.
    retry_times: dict[Any, float] = field(default_factory=dict)
    #: How many builds in a row did not serve the call that they were made for.
    useless_builds: int = 0
    #: The number of failed builds since the last success, and the time until which none is started at all: the calls
    #: may differ in something that has nothing to do with the failure.
    failures: int = 0
    rest_until: float = 0.0
    #: If nothing more can be built, the reason for which the method itself runs.
    end_reason: str = ""
    #: Causes of calls without a graph that were logged.
    warned: set[str] = field(default_factory=set)

    def after_refresh(self) -> Lessons:
        """Return lessons that hold nothing but the background build whose report is still to come."""
        begun = replace(self.begun, is_before_refresh=True) if self.begun is not None else None
        return Lessons(begun=begun, reports=self.reports)
