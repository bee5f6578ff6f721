"""`on_miss="background"`: another process builds what a call needs, and the method itself serves in the meantime."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from gearcache.errors import InputError, MissingTorchNames, OptionError, TooManyVariants, UncalledProbes
from gearcache.guards.gears.parse import GearSpec
from gearcache.serving.call.bound_method import BoundMethod
from gearcache.serving.call.call import Call
from gearcache.serving.call.resolved import ResolvedMethod
from gearcache.serving.find.loaded import Frame
from gearcache.serving.miss.builds import Builds
from gearcache.serving.miss.forked_build import ForkedBuild, Report, can_fork
from gearcache.serving.miss.lessons import BackgroundBuild, Lessons
from gearcache.serving.miss.likeness import likeness
from gearcache.serving.miss.refused_calls import PATIENCE

logger = logging.getLogger("gearcache")
#: No build at all is started for this many times its duration, doubled after each further failure.
_REST = 4.0
_MOST = 64
_POLL_SECONDS = 0.02
#: Tiers whose faults the build processes have already reported.
_reported_tiers: set[str] = set()


class _Slot:
    """The one background build that this process may run at a time.

    No thread waits for its lock: it may be held by the same thread, interrupted by a signal handler.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._build: ForkedBuild | None = None
        self._reports: deque[Report] = deque()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._build = None  # the parent's build is not this process's

    def is_free(self) -> bool:
        """Whether no build is running; also collects the report of a finished one."""
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
        """Start a build, whose report will be added to `reports`; False if that is impossible now."""
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
    """Wait until no background build is running; returns whether there was one."""
    waited = False
    while not _slot.is_free():
        waited = True
        time.sleep(_POLL_SECONDS)
    return waited


class BackgroundBuilds:
    """The background builds of one binding, while the method itself serves. Not thread-safe: its owner locks."""

    def __init__(self, builds: Builds, lessons: Lessons) -> None:
        self._builds, self._variants = builds, builds.variants
        self._method, self._history = builds.variants.method, builds.variants.history
        self._lessons = lessons
        self._entry_name = builds.variants.entry.key.name

    def serve(self, call: Call, spec: GearSpec, why: str) -> Frame | str:
        """Load a finished build for a call, or start one; returns the frame, or why the method itself has to run.

        `OptionError` if the process cannot be forked.
        """
        is_free = _slot.is_free()
        has_ended = bool(self._lessons.reports)
        while self._lessons.reports:
            self._process_report(self._lessons.reports.popleft())
        if self._lessons.end_reason:
            return self._lessons.end_reason
        if self._entry_name in self._lessons.full_entries:
            return "max_variants"
        if not (is_free or has_ended):
            return "background"
        call_likeness = likeness(call)
        if time.monotonic() < max(self._lessons.rest_until, self._lessons.retry_times.get(call_likeness, 0.0)):
            return "refused"
        if (frame := self._stored(call)) is not None:
            self._lessons.useless_builds = 0
            return frame
        if self._lessons.end_reason:  # the lookup was a fault
            return self._lessons.end_reason
        if not is_free:  # the build of another method runs
            return "background"
        if call_likeness == self._lessons.stored_likeness:  # something has changed meanwhile, and may change again
            self._lessons.stored_likeness = None
            self._lessons.useless_builds += 1
            if self._lessons.useless_builds > 1:
                self._lessons.rest_until = time.monotonic() + _rest(self._lessons.useless_builds) * max(
                    self._lessons.seconds, 1.0
                )
                self._warn("what was compiled does not serve the call: the module changes meanwhile, time and again")
                return "refused"
        self._begin(call, spec, why, call_likeness)
        return "background"

    def _stored(self, call: Call) -> Frame | None:
        """Return the frame of a graph that this or another process has stored for the call since the last lookup.

        Raises as `Binding.prepare` does; a fault of the cache ends all builds.
        """
        try:
            _, is_fresh = self._variants.known.take_fresh()
            return self._variants.look_up(call, counted=False).frame if is_fresh else None
        except Exception as error:
            self._history.fault_or_raise(error)
            self._lessons.end_reason = "fault"
            return None

    def _begin(self, call: Call, spec: GearSpec, why: str, call_likeness: Any) -> None:
        _check_fork(self._method)
        self._variants.check_key()
        threads = torch.get_num_threads()

        def work() -> None:
            self._builds.compiles.threads, self._builds.tiers.leaves_sending = threads, True
            # `InputError`: its graphs are stored, and refuse the call itself, which learns it at its next lookup.
            with contextlib.suppress(InputError):
                if isinstance(self._builds.build(call, spec, why), str):
                    raise RuntimeError("; ".join(self._history.untold()) or "it could not be made")
            if self._variants.entry.is_in_memory:
                raise RuntimeError("; ".join(self._history.untold()) or "it could not be stored")

        text = self._builds.prepare_fork(call, spec)
        limit = self._method.settings.compile_timeout * (1 + max(1, len(spec.gears)))
        self._lessons.begun = BackgroundBuild(self._entry_name, call_likeness, text, self._builds, time.monotonic())
        has_begun = False
        try:
            has_begun = _slot.begin(work, limit, self._lessons.reports)
        except OSError as error:  # the host has no process, memory or descriptor left at this moment
            self._note_failure(call_likeness, f"no process can be started: {error}", 0.0)
        if has_begun:
            self._history.uncounted.clear()  # the child counts them
            logger.info("%s: compiling in the background", self._method.name)
        else:
            self._lessons.begun = None

    def _process_report(self, report: Report) -> None:
        """Process the report of a build, which may be of another binding's; each error is logged once."""
        begun, self._lessons.begun = self._lessons.begun, None
        assert begun is not None, "one build of a method runs at a time"
        seconds = self._lessons.seconds = time.monotonic() - begun.begin
        for event in report.events:
            self._method.counters.note(event)
        for level, text in report.logged:
            # A failing tier is reported once, however many processes use it.
            tier = text.partition(": ")[0] if text.startswith("tier ") else ""
            if tier not in _reported_tiers:
                logger.log(level, "%s", text)
            if tier:
                _reported_tiers.add(tier)
        if not report.kind and any(event.kind == "publish" for event in report.events):
            begun.builds.take_over(begun.work)
        if begun.is_before_refresh:  # what it says about calls held until then
            return
        if not report.kind:
            self._lessons.stored_likeness, self._lessons.failures = begun.call_likeness, 0
            return
        if report.kind in (MissingTorchNames.__name__, UncalledProbes.__name__):
            self._lessons.end_reason = "torch"
            self._warn(report.error)
            return
        if report.kind == TooManyVariants.__name__:
            self._lessons.full_entries.add(begun.entry_name)
            logger.warning("%s", report.error)
            return
        cause = report.error if report.kind == "RuntimeError" else f"{report.kind}: {report.error}"
        self._note_failure(begun.call_likeness, cause, seconds, raises=report.kind == "MethodRaises")

    def _note_failure(self, call_likeness: Any, cause: str, seconds: float, *, raises: bool = False) -> None:
        """Let like calls run without a graph for some time; `raises`: the method itself raises, so the user knows."""
        if len(self._lessons.retry_times) >= _MOST:
            self._lessons.retry_times.clear()
        self._lessons.retry_times[call_likeness] = time.monotonic() + PATIENCE * max(seconds, 1.0)
        self._lessons.rest_until = time.monotonic() + _rest(self._lessons.failures) * max(seconds, 1.0)
        self._lessons.failures += 1
        self._warn(f"compiling in the background failed: {cause}", logging.INFO if raises else logging.WARNING)

    def _warn(self, cause: str, level: int = logging.WARNING) -> None:
        """Log once why calls run without a graph."""
        if cause not in self._lessons.warned:
            if len(self._lessons.warned) >= _MOST:
                self._lessons.warned.clear()
            self._lessons.warned.add(cause)
            self._history.lines.append(cause)
            logger.log(level, "%s runs without a graph: %s", self._method.name, cause)


def _rest(failures: int) -> float:
    """Return for how many times the duration of a build no other is started, after so many failures in a row."""
    return min(PATIENCE, _REST * 2.0 ** min(failures, 8))


def _check_fork(method: ResolvedMethod) -> None:
    is_on_cpu = method.backend.name in ("inductor", "eager") and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not hasattr(os, "fork") or not is_on_cpu:
        raise OptionError(
            f"option `on_miss` is 'background' for `{method.name}`; it forks the process, for which no CUDA device or "
            "NPU may be in use: take 'eager' with `.warm()` in a thread, or `gearcache prewarm`"
        )


def take_wait(name: str, method: BoundMethod, kwargs: dict[str, Any], *, is_background: bool) -> bool:
    """Take `wait` out of the arguments of `warm`, unless the method has one of this name; returns whether to wait.

    By default `warm` does not wait with `on_miss="background"`. `OptionError` for a value that is not a bool, and for
    False if every `warm` waits.
    """
    signature = method.signature()
    if "wait" not in kwargs or "wait" in (*signature.outer.parameters, *signature.inner.parameters):
        return not is_background
    wait = kwargs.pop("wait")
    if not isinstance(wait, bool) or not (wait or is_background):
        raise OptionError(f"`{name}`: warm: wait is {wait!r}; it must be True, or False with on_miss='background'")
    return wait


def begin_build(prepare: Callable[[Call], object], call: Call, *, waits: bool) -> None:
    """Start the background build of what a call needs; with `waits`, return when it has ended, well or not."""
    while prepare(call) is None and waits and wait_for_slot():
        pass
