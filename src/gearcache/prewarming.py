"""Prewarming: compile and store every gear of every cached method that a function calls, without serving it.

    def build():                           # in a module of the deployment, `deploy.py`
        with torch.device("meta"):         # shapes are enough: neither weights nor their memory are needed
            model = Model()
        model.cached_decode(torch.empty(1, 1, dtype=torch.long, device="meta"))

    report = gearcache.prewarm(build)      # or `gearcache prewarm deploy:build`

Each call compiles what is missing and then runs the plain method, so that its results can be passed on; `.warm(...)`
compiles without running. A relaunch with real weights on the target device hits what was made from `meta` or fake ones.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from gearcache import session
from gearcache.errors import CompileError, GearcacheError
from gearcache.events import Event, add_listener
from gearcache.ge_cache.stand_ins import stand_ins
from gearcache.prewarm_report import Prewarmed as Prewarmed
from gearcache.prewarm_report import PrewarmInterrupted as PrewarmInterrupted
from gearcache.prewarm_report import PrewarmReport as PrewarmReport
from gearcache.survey import survey

if TYPE_CHECKING:
    from gearcache.binding import Binding
    from gearcache.session import Preparable

_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


def prewarm(
    function: Callable[[], object],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    ranks: Sequence[int] = (),
    world_size: int | None = None,
    device: str | torch.device = "cpu",
    dry_run: bool = False,
) -> PrewarmReport:
    """Call `function`, and compile and store what its calls of cached methods need.

    - `cache_dir`: root of the cache, before what the methods themselves name.
    - `jobs`: compile processes.
    - `ranks`, `world_size`: act as these ranks of a distributed job, one after the other: `function` runs once for
      each, with `RANK`, `LOCAL_RANK` and `WORLD_SIZE` set. Without `ranks`, all of `world_size`.
    - `device`: where tensors on `meta` will be when the model is served.
    - `dry_run`: look up only; the report says what is missing.

    A gear or call that fails is in the report, and the others go on; an exception of the function itself is raised.
    `PrewarmInterrupted` (a `KeyboardInterrupt`) at Ctrl-C. One prewarm at a time in a process.
    """
    report, error = run_prewarm(
        function,
        cache_dir=cache_dir,
        jobs=jobs,
        ranks=ranks,
        world_size=world_size,
        device=device,
        dry_run=dry_run,
    )
    if isinstance(error, KeyboardInterrupt):
        raise PrewarmInterrupted(report) from None
    if error is not None:
        raise error
    return report


def run_prewarm(
    function: Callable[[], object],
    *,
    cache_dir: str | os.PathLike[str] | None,
    jobs: int | None,
    ranks: Sequence[int],
    world_size: int | None,
    device: str | torch.device,
    dry_run: bool,
) -> tuple[PrewarmReport, BaseException | None]:
    """Like `prewarm`, but returns what the function raised beside the report of what was done until then."""
    _check(function, jobs, ranks, world_size)
    chosen: list[int | None] = list(ranks) or (list(range(world_size)) if world_size else [None])
    running = _Session(
        cache_dir=os.fspath(cache_dir) if cache_dir is not None else None,
        jobs=jobs,
        world_size=world_size,
        device=torch.device(device),
        dry_run=dry_run,
    )
    session.enter(running)
    try:
        for rank in chosen:
            running.rank = rank
            with _rank_variables(rank, world_size):
                function()
    except (Exception, KeyboardInterrupt) as error:
        report = running.report()
        report.interrupted = isinstance(error, KeyboardInterrupt)
        return report, error
    finally:
        session.leave()
        running.close()
    return running.report(), None


def _check(function: object, jobs: int | None, ranks: Sequence[int], world_size: int | None) -> None:
    if not callable(function):
        raise TypeError(f"prewarm takes a function without arguments, not a {type(function).__name__}")
    for name, value, least in (("jobs", jobs, 1), ("world_size", world_size, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"prewarm: {name} is {value!r}; it must be an int of at least {least}")
    if ranks and world_size is None:
        raise ValueError("prewarm: ranks need a world_size, as it is part of the key")
    for rank in ranks:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < (world_size or 0):
            raise ValueError(f"prewarm: rank is {rank!r}; with world_size={world_size} it is 0 to {world_size - 1}")  # type: ignore[operator]


@contextmanager
def _rank_variables(rank: int | None, world_size: int | None) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _RANK_VARIABLES}
    if rank is not None:
        os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class _Session:
    """Takes the calls of all cached methods while `prewarm` runs; several threads may call at once."""

    def __init__(
        self, *, cache_dir: str | None, jobs: int | None, world_size: int | None, device: torch.device, dry_run: bool
    ) -> None:
        self.cache_dir = cache_dir
        self.jobs = jobs
        # A job of one process is none, as at serving time.
        self.world_size = world_size if world_size is not None and world_size > 1 else None
        self._rank: int | None = None
        self._device = device
        self._dry_run = dry_run
        self._begin = time.monotonic()
        self._entries: dict[tuple[str, str, int | None], Prewarmed] = {}
        #: The name of each cached method that was made and not called yet, also when it is gone; by serial number.
        self._silent: dict[int, str] = {}
        self._serials: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next_serial = itertools.count()
        self._called: weakref.WeakSet[Any] = weakref.WeakSet()
        self._events: list[Event] = []
        self._lock = threading.RLock()  # stand-ins are for one call at a time
        self._remove = add_listener(self._events.append)

    @property
    def rank(self) -> int | None:
        """The rank to act as; None outside a distributed job."""
        return self._rank if self.world_size is not None else None

    @rank.setter
    def rank(self, rank: int | None) -> None:
        self._rank = rank

    def created(self, method: Preparable) -> None:
        """Note a new cached method."""
        serial = self._serials[method] = next(self._next_serial)
        self._silent[serial] = method.name

    def warm(self, method: Preparable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile what a call needs."""
        with self._lock, method.locked(), stand_ins(self._device):
            self._called.add(method)
            self._silent.pop(self._serials.get(method, -1), None)
            arguments = method.arguments_of(args, kwargs)
            try:
                binding = method.binding_for(arguments)
            except GearcacheError as error:
                self._entry(method.name, "").failed[f"call {len(self._entries) + 1}"] = str(error)
                return
            entry = self._entry(method.name, str(binding.entry.layout.manifest(binding.entry.key)))
            if self._dry_run:
                self._look(binding, arguments, entry)
            else:
                self._compile(binding, arguments, entry)

    def call(self, method: Preparable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compile what a call needs, then run the plain method: on `meta`, too, results have shapes."""
        self.warm(method, args, kwargs)
        try:
            with torch.no_grad():
                return method.function(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error) and "DataDependent" not in type(error).__name__:
                raise
            raise GearcacheError(
                f"`{method.name}` was prewarmed, but it cannot run without data to give a result ({error}); "
                f"call `.warm(...)` of the cached method instead, which does not run it"
            ) from error

    def _entry(self, method: str, path: str) -> Prewarmed:
        key = (method, path, self.rank)
        if key not in self._entries:
            self._entries[key] = Prewarmed(method, path, self.rank)
        return self._entries[key]

    def _look(self, binding: Binding, arguments: dict[str, Any], entry: Prewarmed) -> None:
        found = survey(binding, arguments)
        entry.present += [gear for gear in found.present if gear not in entry.present]
        entry.missing += [gear for gear in found.missing if gear not in entry.missing]
        entry.reason = entry.reason or found.reason
        entry.size = found.size

    def _compile(self, binding: Binding, arguments: dict[str, Any], entry: Prewarmed) -> None:
        self._events.clear()
        failure: GearcacheError | None = None
        try:
            binding.prepare(arguments)
            binding.complete(arguments)
        except GearcacheError as error:
            failure = error
        finally:
            self._count(entry)
        if failure is not None and not (isinstance(failure, CompileError) and failure.gear in entry.failed):
            gear = failure.gear if isinstance(failure, CompileError) else f"call {len(entry.failed) + 1}"
            entry.failed[gear] = str(failure)

    def _count(self, entry: Prewarmed) -> None:
        for event in self._events:
            if event.kind == "compile":
                entry.compiled[event.gear] = round(event.seconds, 3)
                entry.failed.pop(event.gear, None)
            elif event.kind == "compile_failed":
                entry.failed[event.gear] = event.detail
            elif event.kind == "load":
                known = {*entry.compiled, *entry.present}
                entry.present += [gear for gear in dict.fromkeys(event.gears) if gear not in known]
                entry.size += event.bytes
            elif event.kind == "miss":
                entry.reason = entry.reason or event.detail

    def report(self) -> PrewarmReport:
        """Return what happened so far."""
        known = {entry.method for entry in self._entries.values()}
        return PrewarmReport(
            entries=list(self._entries.values()),
            never_called=sorted(set(self._silent.values()) - known),
            seconds=time.monotonic() - self._begin,
            dry_run=self._dry_run,
        )

    def close(self) -> None:
        """Let go of the graphs: they are bound to stand-ins and must not serve a call."""
        self._remove()
        for method in list(self._called):
            method.refresh()
