"""The session of a prewarm: receives the calls of all cached methods, compiles what they need, and makes the report."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from gearcache.errors import CompileError, GearcacheError, NoOperation, PublishError, UnsafePath
from gearcache.events import Event, held_events
from gearcache.ge_cache.capture.stand_ins import stand_ins
from gearcache.ge_cache.dependencies.log import collected_code
from gearcache.guards.gears.call_sizes import gear_with_dims, special_dims, special_text
from gearcache.guards.gears.short_names import sizes_name
from gearcache.prewarming.kinds import kind_of
from gearcache.prewarming.reach import Reach
from gearcache.prewarming.report import Prewarmed, PrewarmReport
from gearcache.prewarming.share import LeftTo
from gearcache.prewarming.survey import Survey, survey
from gearcache.serving.call.stance import followers

if TYPE_CHECKING:
    from gearcache.prewarming.coverage import Gap
    from gearcache.serving.call.call import Call
    from gearcache.serving.call.method import CachedMethod
    from gearcache.serving.find.binding import Binding

logger = logging.getLogger("gearcache")
#: How many parts of the declared sizes are compiled in addition to that of the example.
_MOST_PARTS = 16
_LEFT_OUT = "no graph of the entry takes these declared sizes"


class PrewarmSession:
    """Receives the calls of all cached methods while `prewarm` runs; several threads may call at once."""

    def __init__(
        self,
        *,
        cache_dir: str | None,
        jobs: int | None,
        world_size: int | None,
        device: torch.device,
        dry_run: bool,
        left_to: LeftTo | None = None,
        reads: bool = False,
        fetches: bool = False,
    ) -> None:
        """`left_to` returns, for the name of an entry, which other process compiles it.

        If requested, a dry run reads every byte (`reads`), or fetches missing entries from the tiers (`fetches`).
        """
        self.cache_dir = cache_dir
        self.jobs = jobs
        # `world_size=1` is not distributed, exactly as at serving time.
        self.world_size = world_size if world_size is not None and world_size > 1 else None
        #: The rank to act as; None outside a distributed job.
        self.rank: int | None = None
        self._device = device
        self._dry_run = dry_run
        self._left_to = left_to
        self._reads = reads
        self._fetches = fetches
        #: The most gears that a call needs, by the name of each entry.
        self.work: dict[str, int] = {}
        self._start_time = time.monotonic()
        self._entries: dict[tuple[str, str, int | None], Prewarmed] = {}
        #: The name of each cached method that was not called yet, even if the method is gone; by serial number.
        self._uncalled: dict[int, str] = {}
        self._serials: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next_serial = itertools.count()
        #: Methods with declared arguments, kept until they are prewarmed: only the function may refer to their model.
        self._declared: list[CachedMethod] = []
        #: The blobs of each entry that was looked up: bytes by digest.
        self._blobs: dict[str, dict[str, int]] = {}
        #: The stored graphs of each entry that are in the report: those that a survey has found, and the gears of those
        #: compiled since.
        self._graphs: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._compiled_gears: defaultdict[str, Counter[str]] = defaultdict(Counter)
        #: The missing graphs of each entry by kind of call and gear.
        self._missing: defaultdict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        #: For the first call of each entry: the sizes of its geared dims, and its shapes by argument path.
        self._first_sizes: dict[str, tuple[tuple[int, ...], dict[str, tuple[int, ...]]]] = {}
        self._called: weakref.WeakSet[Any] = weakref.WeakSet()
        #: Those that were called for the present rank.
        self._called_by_rank: weakref.WeakSet[Any] = weakref.WeakSet()
        #: How often each method was called so far, by name.
        self._call_counts: Counter[str] = Counter()
        #: Why nothing can be stored in the cache: no call is compiled after that.
        self.unwritable: PublishError | UnsafePath | None = None
        self._lock = threading.RLock()  # stand-ins are for one call at a time

    def begin(self, rank: int | None) -> None:
        """Act as a rank from now on. All methods look everything up anew.

        What a method found before is of another rank or folder, and its dispatch would not come to the session.
        """
        self.rank = rank if self.world_size is not None else None
        self._called_by_rank = weakref.WeakSet()
        for method in followers():
            method.refresh()

    def created(self, method: CachedMethod) -> None:
        """Record a new cached method."""
        serial = self._serials[method] = next(self._next_serial)
        self._uncalled[serial] = method.name

    def declared(self, method: CachedMethod) -> None:
        """Record a cached method with declared arguments: it needs no call."""
        if not any(other is method for other in self._declared):
            self._declared.append(method)

    def warm_declared(self, returned: object) -> None:
        """Compile the declared calls of methods that were not called for this rank.

        Those are the methods declared by the function, and those that it returned or whose model it returned: they may
        have been made before.
        """
        for method in Reach(returned).methods:  # makes decorated methods
            if method.is_declared:
                if method not in self._serials:
                    self.created(method)
                self.declared(method)
        while self._declared:
            method = self._declared.pop(0)
            if method not in self._called_by_rank:
                try:
                    method.warm()
                    calls = method.special_calls()
                except (TypeError, GearcacheError) as error:  # raised for an argument that is not declared
                    self._note_failed_call(method, error)
                    continue
                for args, kwargs in calls:
                    self.warm(method, args, kwargs, is_needed=False)
                self._cover(method)

    def _note_failed_call(self, method: CachedMethod, error: Exception) -> None:
        """Record a call of a method for which there is not even a key."""
        self._entry(method.name, "").failed[self._call_text(method.name)] = str(error)

    def _call_text(self, method: str) -> str:
        """Return the name of the present call of a method in the report: its number in the order of the calls."""
        return f"call {max(1, self._call_counts[method])}"

    def _cover(self, method: CachedMethod) -> None:
        """Compile the declared sizes that the graphs of declared calls leave out; a dry run reports them.

        If no graph can be made for a part, because the method refuses such sizes, that fact is stored.
        """
        tried: list[str] = []
        while (gap := self._next_gap(method, tried)) is not None:
            tried.append(gap.text)
            args, kwargs = method.declared_call(gap.first)
            self.warm(method, args, kwargs, is_needed=False, gap=gap)

    def _next_gap(self, method: CachedMethod, tried: list[str]) -> Gap | None:
        args, kwargs = method.declared_call(None)  # outside stand-ins: examples are on `meta` if the weights are
        with self._lock, method.locked(), stand_ins(self._device):
            call = method.call_of(args, kwargs)
            try:
                binding = method.binding_for(call)
            except GearcacheError:  # it is in the report
                return None
            entry = self._entry(method.name, str(binding.entry.layout.manifest(binding.entry.key)))
            uncovered = [] if entry.left_to else survey(binding, call).gaps
        for gap in uncovered:
            args, kwargs = method.declared_call(gap.first)
            with self._lock, method.locked(), stand_ins(self._device):
                refusal = binding.impossible(method.call_of(args, kwargs))
            if refusal is not None:
                entry.impossible[gap.text] = refusal.reason
            elif self._dry_run:
                entry.missing.append(gap.text)
                entry.reasons[gap.text] = _LEFT_OUT
                entry.reason = entry.reason or _LEFT_OUT
            elif gap.text in tried or len(tried) >= _MOST_PARTS:
                entry.failed.setdefault(gap.text, f"{_LEFT_OUT}, after {len(tried)} further compiles")
            elif gap.text not in entry.failed:
                return gap
        return None

    def warm(
        self,
        method: CachedMethod,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_needed: bool = True,
        gap: Gap | None = None,
    ) -> None:
        """Compile what a call needs. If no graph can be made for a call that is not needed, because the method may
        refuse such sizes, that fact is stored. `gap`: the sizes for which it is made. If the cache cannot be written,
        this raises, as does each later call.
        """
        if self.unwritable is not None:
            raise self.unwritable
        with self._lock, method.locked(), stand_ins(self._device):
            self._call_counts[method.name] += 1
            self._called.add(method)
            self._called_by_rank.add(method)
            self._uncalled.pop(self._serials.get(method, -1), None)
            call = method.call_of(args, kwargs)
            try:
                binding = method.binding_for(call)
            except GearcacheError as error:
                self._note_failed_call(method, error)
                return
            entry = self._entry(method.name, str(binding.entry.layout.manifest(binding.entry.key)))
            entry.key, entry.ranks = binding.entry.key.digest, binding.entry.layout.ranks
            name = entry_name(binding)
            self.work[name] = max(self.work.get(name, 0), len(binding.method.spec.gears), 1)
            entry.left_to = self._left_to(name) if self._left_to is not None else ""
            if entry.left_to:
                return
            if self._dry_run:
                self._look_up(binding, call, entry)
            else:
                self._compile(binding, call, entry, is_needed=is_needed, gap=gap)

    def call(self, method: CachedMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compile what a call needs, then run the original method: results have shapes on `meta`, too."""
        self.warm(method, args, kwargs)
        try:
            # Not beside `warm` of another thread: its stand-ins replace all tensors of the process.
            with self._lock, torch.no_grad():
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

    def _look_up(self, binding: Binding, call: Call, entry: Prewarmed) -> None:
        state = survey(binding, call, reads=self._reads)
        if state.missing and self._fetches and binding.method.settings.remotes:
            binding.builds.fetch(call)
            state = survey(binding, call, reads=self._reads)
        if state.refusal:
            entry.failed[self._call_text(entry.method)] = state.refusal
        dims = self._other_dims(entry, binding, call)
        self._count_present(entry, state, dims)
        kind, missing = kind_of(call), self._missing[entry.entry]
        for gear in state.missing:
            graph = kind, gear_with_dims(gear, dims)
            if graph not in missing:
                missing[graph] = entry.graph_name(graph[1])
                entry.missing.append(missing[graph])
            entry.reasons.setdefault(missing[graph], state.reasons[gear])
        if not entry.reason:
            entry.reason, entry.advice = state.reason, state.advice
        entry.impossible |= state.impossible
        blobs = self._blobs.setdefault(entry.entry, {})
        blobs |= state.blobs
        entry.size = sum(blobs.values())

    def _count_present(self, entry: Prewarmed, state: Survey, dims: str) -> None:
        """Count the graphs of a call that were stored before, each once although several calls need it."""
        known, compiled = self._graphs[entry.entry], self._compiled_gears[entry.entry]
        for text, graph in state.graphs.items():
            if graph in known:
                continue
            known.add(graph)
            gear = graph[1]
            if compiled[gear]:
                compiled[gear] -= 1
            else:
                entry.present.append(entry.graph_name(gear_with_dims(text, dims)))

    def _other_dims(self, entry: Prewarmed, binding: Binding, call: Call) -> str:
        """Return the dims without gears whose sizes differ from the first call of an entry, in words."""
        spec = call.spec(binding.method.spec)
        shapes = {path: tuple(tensor.shape) for path, tensor in call.tensors.items()}
        sizes = call.sizes(spec)
        first_sizes, first_shapes = self._first_sizes.setdefault(entry.entry, (sizes, shapes))
        declared = (*spec.axes, *spec.ranges)
        follow = set(zip(first_sizes, sizes, strict=False))  # other dims may change with a geared dim
        return ", ".join(
            f"{path}.size({dim})={size}"
            for path, shape in (shapes.items() if spec.axes else ())
            for dim, (first, size) in enumerate(zip(first_shapes.get(path, ()), shape, strict=False))
            if first != size and (first, size) not in follow
            if not any(axis.dim == dim and axis.matches(path) for axis in declared)
        )

    def _compile(self, binding: Binding, call: Call, entry: Prewarmed, *, is_needed: bool, gap: Gap | None) -> None:
        spec = call.spec(binding.method.spec)
        text = gap.text if gap is not None else special_text(spec, call.tensors)
        dims = gap.dims if gap is not None else special_dims(spec, call.tensors)
        other_dims = self._other_dims(entry, binding, call)
        dims = gear_with_dims(dims, other_dims)
        if not is_needed and (refusal := binding.impossible(call)) is not None:
            entry.impossible[text] = refusal.reason
            return
        failure: GearcacheError | None = None
        failed = dict(entry.failed)
        with held_events() as events, collected_code() as codes:
            try:
                binding.prepare(call)
                binding.complete(call)
            except GearcacheError as error:
                failure = error
            finally:
                is_stored = not binding.entry.is_in_memory
                self._count(entry, events, dims, failed, has_gears=bool(spec.axes), is_stored=is_stored)
            if _is_unwritable(failure):
                self.unwritable = failure
                entry.failed[text or self._call_text(entry.method)] = str(failure)
                raise failure
            if isinstance(failure, NoOperation):  # the method serves it
                entry.impossible[text or self._call_text(entry.method)], failure = failure.cause, None
            if failure is not None and not is_needed and binding.note_impossible(call, failure, codes):
                name = sizes_name(text)
                logger.info("prewarm: %s is not compiled for a declared call of %s: %s", entry.method, name, failure)
                entry.failed, entry.impossible[text], failure = failed, str(failure), None
            if is_stored:
                self._count_present(entry, survey(binding, call), other_dims)
            for number, problem in enumerate(binding.send() if failure is None else [], 1):
                entry.failed[f"upload {number}"] = problem
        if failure is not None:
            gear = text or (failure.gear if isinstance(failure, CompileError) else self._call_text(entry.method))
            if not (isinstance(failure, CompileError) and gear in entry.failed):
                entry.failed[gear] = str(failure)

    def _count(
        self,
        entry: Prewarmed,
        events: list[Event],
        dims: str,
        failed_before: dict[str, str],
        *,
        has_gears: bool,
        is_stored: bool,
    ) -> None:
        """Count the result of a call. Its graphs are named after their gear and after `dims`, or as they are.

        A graph is compiled when it is stored, and in the cache (`is_stored`) rather than in memory. A success ends no
        failure of earlier calls: that may be of another variant, whose graphs have gears of the same names.
        """
        unstored: list[Event] = []
        for event in events:
            gear = gear_with_dims(event.gear if has_gears or not dims else "", dims)
            if event.kind == "compile":
                unstored.append(event)
            elif event.kind == "publish" and is_stored:
                self._count_compiled(entry, unstored, dims, failed_before, has_gears=has_gears)
                unstored.clear()
            elif event.kind == "compile_failed":
                entry.failed[gear] = event.detail
            elif event.kind == "fault" and not event.tier and event.detail not in entry.failed.values():
                entry.failed[gear or self._call_text(entry.method)] = event.detail
            elif event.kind == "load":
                entry.size += event.bytes
            elif event.kind == "miss":
                entry.reason = entry.reason or event.detail

    def _count_compiled(
        self, entry: Prewarmed, events: list[Event], dims: str, failed_before: dict[str, str], *, has_gears: bool
    ) -> None:
        for event in events:
            gear = gear_with_dims(event.gear if has_gears or not dims else "", dims)
            if gear not in failed_before:
                entry.failed.pop(gear, None)
            entry.compiled[entry.graph_name(gear)] = round(event.seconds, 3)
            self._compiled_gears[entry.entry][event.gear] += 1

    def report(self) -> PrewarmReport:
        """Return what happened so far."""
        called = {entry.method for entry in self._entries.values()}
        return PrewarmReport(
            entries=list(self._entries.values()),
            never_called=sorted(set(self._uncalled.values()) - called),
            seconds=time.monotonic() - self._start_time,
            dry_run=self._dry_run,
        )

    def close(self) -> None:
        """Release the graphs: they are bound to stand-ins and must not serve a call."""
        for method in list(self._called):
            method.refresh()


def _is_unwritable(error: Exception | None) -> TypeGuard[PublishError | UnsafePath]:
    """Whether the cache cannot be written: a full disk, a folder that is closed or not trusted."""
    is_of_host = isinstance(error, PublishError) and isinstance(error.__cause__, OSError)
    return is_of_host or isinstance(error, UnsafePath)


def entry_name(binding: Binding) -> str:
    """Return the name that identifies an entry, independent of the cache's location."""
    key, ranks = binding.entry.key, binding.entry.layout.ranks
    return f"{key.safe_label}-{key.digest}{f'/{ranks}' if ranks else ''}"
