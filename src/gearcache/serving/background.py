"""`on_miss="background"`: another process builds what a call needs, and the method itself serves meanwhile."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import Any

import torch

from gearcache.errors import MissingTorchNames, OptionError, TooManyVariants, UncalledHooks
from gearcache.guards.dispatch.problems import Problems
from gearcache.guards.gears.parse import GearSpec
from gearcache.serving.builds import Builds
from gearcache.serving.call import Call
from gearcache.serving.forked_build import ForkedBuild, Report, can_fork
from gearcache.serving.refused import likeness
from gearcache.serving.resolved import ResolvedMethod
from gearcache.serving.variants import Variants
from gearcache.telemetry.record import Record

logger = logging.getLogger("gearcache")
#: A build that failed is tried again after so many times what it took, whatever may have changed meanwhile.
_PATIENCE = 20.0
#: And none at all is begun after so many times what it took, twice as many after the next one that fails.
_REST = 4.0
_MOST = 64
_POLL_SECONDS = 0.02
#: Tiers whose faults processes of builds have told of.
_told_tiers: set[str] = set()


class _Slot:
    """The one build of this process that may be under way in the background.

    Nobody waits for its lock: who holds it may be the same thread, which a signal handler has interrupted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._build: ForkedBuild | None = None
        self._reports: deque[Report] = deque()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._build = None  # it is the parent's

    def is_free(self) -> bool:
        """Whether no build is under way; hands in the report of one that has ended."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._build is not None and (report := self._build.poll()) is not None:
                self._build = None
                self._reports.append(report)
            return self._build is None
        finally:
            self._lock.release()

    def begin(self, work: Any, seconds: float, reports: deque[Report]) -> bool:
        """Begin a build, whose report will be in `reports`; False where that cannot be now."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._build is not None or not can_fork():
                return False
            self._build, self._reports = ForkedBuild(work, seconds), reports
            return True
        finally:
            self._lock.release()


_slot = _Slot()


def wait_for_slot() -> bool:
    """Return when no build is under way in the background; whether there was one."""
    waited = False
    while not _slot.is_free():
        waited = True
        time.sleep(_POLL_SECONDS)
    return waited


class BackgroundBuilds:
    """The builds of one binding that go on while the method itself serves. Not thread safe: its owner locks."""

    def __init__(self, method: ResolvedMethod, builds: Builds, variants: Variants, record: Record) -> None:
        self._method = method
        self._builds = builds
        self._variants = variants
        self._record = record
        self._reports: deque[Report] = deque()
        self._begun = 0.0
        #: Of the call for which the build that is under way was begun.
        self._wanted: Any = None
        #: What that build compiles, as other hosts call it.
        self._work = ""
        #: Of the call for which graphs were stored last.
        self._stored: Any = None
        #: When calls of which no graph could be made may be tried again.
        self._due: dict[Any, float] = {}
        #: How often in a row nothing that was stored has served the call that it was built for; of the last, its time.
        self._useless, self._seconds = 0, 0.0
        self._told: set[str] = set()
        #: Builds that have failed since one succeeded, and until when none is begun at all: what calls differ in may
        #: have nothing to do with it.
        self._failures, self._rest = 0, 0.0
        #: Set when nothing more can be built, to the reason for which the method itself runs.
        self._ended = ""

    def serve(self, call: Call, spec: GearSpec, why: str) -> str:
        """Load what was built for a call, or see to it that it will be; returns why the method itself is to run.

        `""` where a graph serves the call now. `OptionError` where a process cannot be forked.
        """
        is_free = _slot.is_free()
        while self._reports:
            self._take(self._reports.popleft())
        if self._ended:
            return self._ended
        if not is_free:
            return "background"
        wanted = likeness(call)
        if time.monotonic() < max(self._rest, self._due.get(wanted, 0.0)):
            return "refused"
        if self._is_stored(call):
            self._useless = 0
            return ""
        if wanted == self._stored:  # something has changed meanwhile, as it may once more
            self._stored = None
            self._useless += 1
            if self._useless > 1:
                self._rest = time.monotonic() + _REST * 2**self._useless * max(self._seconds, 1.0)
                self._tell("what was compiled does not serve the call: the module changes meanwhile, time and again")
                return "refused"
        self._begin(call, spec, why, wanted)
        return "background"

    def _is_stored(self, call: Call) -> bool:
        """Whether this process or another one has stored what serves a call; it is loaded then."""
        try:
            _, is_fresh = self._variants.take_fresh()
            loaded = is_fresh and self._variants.load(call, counted=False) is None
        except Exception as error:
            self._record.history.fault(error)
            self._ended = "fault"
            return False
        return loaded and not isinstance(self._variants.find(call), Problems)

    def _begin(self, call: Call, spec: GearSpec, why: str, wanted: Any) -> None:
        _check_fork(self._method)
        threads = torch.get_num_threads()

        def work() -> None:
            self._builds.compiles.threads, self._builds.tiers.leaves_sending = threads, True
            if not self._builds.build(call, spec, why):
                raise RuntimeError("; ".join(self._record.history.untold()) or "it could not be made")
            if self._variants.entry.is_in_memory:
                raise RuntimeError("; ".join(self._record.history.untold()) or "it could not be stored")

        self._work = self._builds.prepare_fork(call, spec)
        limit = self._method.settings.compile_timeout * (1 + max(1, len(spec.gears)))
        if _slot.begin(work, limit, self._reports):
            self._begun, self._wanted = time.monotonic(), wanted
            logger.info("%s: compiling in the background", self._method.name)

    def _take(self, report: Report) -> None:
        """Note what came of a build; an error is told once."""
        seconds = self._seconds = time.monotonic() - self._begun
        for event in report.events:
            self._record.counters.note(event)
        for level, text in report.logged:
            # A tier that fails is told once, however many processes meet it.
            tier = text.partition(": ")[0] if text.startswith("tier ") else ""
            if tier not in _told_tiers:
                logger.log(level, "%s", text)
            if tier:
                _told_tiers.add(tier)
        if not report.kind:
            self._stored, self._failures = self._wanted, 0
            if any(event.kind == "publish" for event in report.events):
                self._builds.take_over(self._work)
            return
        if report.kind in (MissingTorchNames.__name__, UncalledHooks.__name__):
            self._ended = "torch"
            self._tell(report.error)
            return
        if report.kind == TooManyVariants.__name__:
            self._ended = "max_variants"
            logger.warning("%s", report.error)
            return
        cause = report.error if report.kind == "RuntimeError" else f"{report.kind}: {report.error}"
        self._failed(self._wanted, cause, seconds, raises=report.kind in ("MethodRaises", "OperationRaises"))

    def _failed(self, wanted: Any, cause: str, seconds: float, *, raises: bool = False) -> None:
        """Let like calls run without a graph for some time; `raises`: the method itself does, and the call has told."""
        if len(self._due) >= _MOST:
            self._due.clear()
        self._due[wanted] = time.monotonic() + _PATIENCE * max(seconds, 1.0)
        self._rest = time.monotonic() + min(_PATIENCE, _REST * 2**self._failures) * max(seconds, 1.0)
        self._failures += 1
        self._tell(f"compiling in the background failed: {cause}", logging.INFO if raises else logging.WARNING)

    def _tell(self, cause: str, level: int = logging.WARNING) -> None:
        """Say once why calls run without a graph."""
        if cause not in self._told:
            self._told.add(cause)
            self._record.history.lines.append(cause)
            logger.log(level, "%s runs without a graph: %s", self._method.name, cause)


def _check_fork(method: ResolvedMethod) -> None:
    is_on_cpu = method.backend.name in ("inductor", "eager") and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not hasattr(os, "fork") or not is_on_cpu:
        raise OptionError(
            f"option `on_miss` is 'background' for `{method.name}`; it forks the process, for which no CUDA device or "
            "NPU may be in use: take 'eager' with `.warm()` in a thread, or `gearcache prewarm`"
        )
