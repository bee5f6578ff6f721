"""Compiles what is missing under the key's lock, beside what other processes store meanwhile."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import torch

from gearcache.cache.collection import resumed_collection
from gearcache.errors import CacheError, CompileError, GearcacheError, TooManyVariants
from gearcache.guards.access import Walker
from gearcache.guards.dispatch.problems import Problems
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.evidence.checks import first_failure
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import changed_function
from gearcache.guards.gears.parse import GearSpec, gear_text
from gearcache.serving.activate import EvidenceCheck
from gearcache.serving.call import Call
from gearcache.serving.delayed_calls import DelayedCalls
from gearcache.serving.host_faults import is_host_fault
from gearcache.serving.loaded import takes
from gearcache.serving.resolved import ResolvedMethod
from gearcache.serving.variants import MISFITS, Variants
from gearcache.serving.work import work_text
from gearcache.telemetry.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gearcache.building.request import BuildResult, Findings
    from gearcache.serving.remote_entry import RemoteEntry

logger = logging.getLogger("gearcache")


class Builds:
    """The builds of one binding: each is stored, and then loaded as a relaunch loads it."""

    def __init__(self, method: ResolvedMethod, variants: Variants, record: Record, delayed: DelayedCalls) -> None:
        self._method = method
        self._entry = variants.entry
        self._variants = variants
        self._history = record.history
        self._counters = record.counters
        self._delayed = delayed
        self._findings: Findings | None = None
        #: Threads that compiled code is for, where this process has another number for the time of a build.
        self.threads: int | None = None
        #: Whether this process ends with the build, and the one that it was forked from sends what it stored.
        self.leaves_sending = False
        self._remote_entry: RemoteEntry | None = None
        self._has_no_remote = False

    def build(self, call: Call, spec: GearSpec, why: str, *, is_padded: bool = False) -> bool:
        """Compile under the key's lock, unless another process did it meanwhile; publish; load what was stored.

        Where the cache faults, what was compiled is loaded from memory. False where that cannot be, or the host lacks
        what a compile needs: the method itself serves the call. `why` nothing that is stored does is for errors.
        `is_padded`: a larger gear is to serve the call.
        """
        try:
            with contextlib.ExitStack() as lock:
                present = self._begin(lock, call, spec, why, is_padded=is_padded)
                if present is None:
                    return True
                with self._giving_up():
                    result = self._compile(call, spec, present)
                    is_kept = self._keep(result, present)
                    self._offer()
            self._raise_own_error(call, spec, result)
            return (is_kept and self._load(call)) or self._load_from_memory(result, call)
        except Exception as error:
            if not is_host_fault(error):
                raise
            self._history.fault(error)
            return False

    def _begin(
        self, lock: contextlib.ExitStack, call: Call, spec: GearSpec, why: str, *, is_padded: bool
    ) -> list[StoredVariant] | None:
        """Lock the key, and return the variants to keep; None when one that fits this call has appeared.

        Here, because another process of this host has stored it, or in a tier beyond it.
        """
        try:
            lock.enter_context(self._entry.exclusive())
            present = self._look_again(call, is_padded=is_padded)
        except Exception as error:
            self._fault(error)
            self._entry.use_memory()
            present = []
        try:
            if present is not None and self._remote() is not None:

                def is_served() -> bool:
                    return self._look_again(call, is_padded=is_padded) is None

                if self._obtain(call, spec, present, is_served, any_sizes=is_padded):
                    return None
                present = self._look_again(call, is_padded=is_padded)
            return None if present is None else self._make_room(self._variants.sound(present), call, why)
        except Exception as error:
            self._give_up()
            self._fault(error)
            self._entry.use_memory()
            return []

    def _obtain(
        self,
        call: Call,
        spec: GearSpec,
        present: list[StoredVariant],
        is_served: Callable[[], bool],
        *,
        any_sizes: bool = False,
    ) -> bool:
        """Bring from the tiers what serves a call; `any_sizes`: at another size of it. False: it is to be compiled."""
        remote = self._remote()
        if remote is None:
            return False
        from gearcache.serving.remote_entry import Wanted

        evidence = EvidenceCheck(call.scope)
        wanted = Wanted(
            is_usable=lambda variant: self._variants.unsuited(variant, call, evidence) is None,
            is_likely=lambda variant: takes(variant, call, any_sizes=any_sizes),
            is_served=is_served,
            is_outdated=lambda variant: _is_edited(variant, call),
            work=work_text(call, spec, self._method.dynamic),
            present=self._variants.sound(present),
        )
        return remote.obtain(wanted)

    def _remote(self) -> RemoteEntry | None:
        """Return the entry in the tiers beyond this host; None without tiers."""
        settings = self._method.settings
        if self._remote_entry is None and settings.remotes and not self._has_no_remote:
            from gearcache.serving.remote_entry import RemoteEntry

            try:
                self._remote_entry = RemoteEntry(
                    self._entry,
                    self._history,
                    self._variants.renew,
                    # A tier that fails is no reason for a prewarm, which is strict, to compile nothing: its report
                    # says so.
                    strict=settings.strict and self._method.serves,
                    lock_timeout=settings.lock_timeout,
                )
            except CacheError as error:  # the keys cannot be used: nothing that comes could be checked
                self._has_no_remote = True
                self._history.fault(error)
        return self._remote_entry

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Let other hosts compile where this one could not."""
        try:
            yield
        finally:
            self._give_up()

    def _give_up(self) -> None:
        if self._remote_entry is not None:
            self._remote_entry.give_up()

    def _offer(self) -> None:
        """Send what was compiled to the tiers; a prewarm does so at its end, and a process of its own at once."""
        remote = self._remote()
        if remote is None or self._entry.is_in_memory:
            return
        if self.leaves_sending:
            remote.leave()
        elif not self._method.serves:
            remote.send()
        else:
            remote.offer()

    def prepare_fork(self, call: Call, spec: GearSpec) -> str:
        """Make what a forked process has in common with this one; returns what `take_over` takes."""
        return work_text(call, spec, self._method.dynamic) if self._remote() is not None else ""

    def take_over(self, work: str) -> None:
        """Send what a forked process has compiled."""
        if (remote := self._remote()) is not None:
            remote.take_over(work)

    def send(self) -> list[str]:
        """Send what is stored to the tiers, now; returns the problems."""
        remote = self._remote()
        return remote.send() if remote is not None and not self._entry.is_in_memory else []

    def _keep(self, result: BuildResult, present: list[StoredVariant]) -> bool:
        """Publish what was built; whether that was possible."""
        try:
            self._entry.publish(result, present)
        except Exception as error:
            self._fault(error)
            return False
        return True

    def _load(self, call: Call) -> bool:
        """Load what was published through the same path as a relaunch: what was stored is what runs."""
        try:
            self._variants.read_again()
            if not isinstance(self._variants.find(call), Problems):
                return True
            unloaded = self._variants.load(call, counted=False)
        except Exception as error:
            self._fault(error)
            return False
        if unloaded is None:
            return True
        text = f"what was compiled cannot be used: {unloaded.text or 'its own evidence does not hold'}"
        if unloaded.kind in MISFITS:
            raise CompileError(self._method.name, "of this call", text)
        self._history.fault(CacheError(text))
        return False

    def _load_from_memory(self, result: BuildResult, call: Call) -> bool:
        self._entry.use_memory()
        return self._keep(result, []) and self._load(call)

    def _fault(self, error: Exception) -> None:
        """Pass on what the user has to know of, and note everything else as a fault of the cache."""
        if isinstance(error, GearcacheError) and not isinstance(error, CacheError):
            raise error
        self._history.fault(error)

    def complete(self, call: Call) -> None:
        """Compile the gears of the spec that are missing for a call that a loaded graph serves."""
        if self.missing_gears(call):
            with self._entry.exclusive():
                present, missing = self._load_present(call)
                if missing and self._remote() is not None:
                    spec = call.spec(self._method.spec).only(missing)
                    self._obtain(call, spec, present, lambda: not self._load_present(call)[1], any_sizes=True)
                    present, missing = self._load_present(call)
                if missing:
                    spec = call.spec(self._method.spec).only(missing)
                    with self._giving_up():
                        present = self._make_room(present, call, "gears of it are missing")
                        self._entry.publish(self._compile(call, spec, present), present)
                        self._offer()
            self._variants.read_again()
            self._variants.load(call, counted=False)

    def _load_present(self, call: Call) -> tuple[list[StoredVariant], list[tuple[int, ...]]]:
        """Load what is stored by now for a call; returns what is stored, and the gears that are missing."""
        present = self._variants.read_again()
        self._variants.load(call, counted=False)
        return present, self.missing_gears(call)

    def missing_gears(self, call: Call) -> list[tuple[int, ...]]:
        """Return the gears of the spec that no loaded variant has for such a call, and that can exist."""
        known = {*self._entry.impossible, *self._variants.loaded.gears_for(call)}
        spec = call.spec(self._method.spec)
        return [gear for gear in spec.gears if gear_text(spec, gear) not in known]

    def _look_again(self, call: Call, *, is_padded: bool) -> list[StoredVariant] | None:
        """Return the variants to keep; None when one that fits this call has appeared and is loaded now."""
        present, is_fresh = self._variants.take_fresh()
        if not (is_fresh and self._variants.load(call) is None):
            return present
        is_served = not isinstance(self._variants.find(call), Problems)
        # No graph of a padded call's own sizes is ever stored: it has all that a build could make.
        return None if is_served or (is_padded and not self.missing_gears(call)) else present

    def _make_room(self, present: list[StoredVariant], call: Call, why: str) -> list[StoredVariant]:
        """Return the variants to keep beside a new one; those of edited source go first when there are too many."""
        excess = len(present) + 1 - self._method.settings.max_variants
        if excess <= 0:
            return present
        edited = [variant for variant in present if _is_edited(variant, call)][:excess]
        if len(edited) < excess:
            raise TooManyVariants(self._method.name, self._method.settings.max_variants, why)
        return [variant for variant in present if variant not in edited]

    def _compile(self, call: Call, spec: GearSpec, present: list[StoredVariant]) -> BuildResult:
        """Compile the gears of a spec; at Ctrl-C, what was finished is stored beside `present`."""
        # A relaunch does without tracer and compilers, and without importing what drives them.
        from gearcache.building.build import build
        from gearcache.building.request import BuildInterrupted, BuildRequest, Findings
        from gearcache.ge_cache.private_torch.fake import normal_modes

        is_changing = self._method.dynamic is None
        request = BuildRequest(
            name=self._method.name,
            function=self._method.function,
            arguments=call.given,
            spec=spec,
            dynamic=bool(self._method.dynamic) and bool(spec.ranges) == bool(call.spec(self._method.spec).ranges),
            changing=self._delayed.changing_dims(call, self._variants.known) if is_changing else [],
            backend=self._method.backend,
            options=self._method.settings.options,
            decompositions=self._method.decompositions,
            jobs=self._method.settings.jobs,
            compile_timeout=self._method.settings.compile_timeout,
            repeats=self._method.settings.repeats,
            threads=self.threads or torch.get_num_threads(),
            findings=self._findings or Findings(),
            mode=self._method.mode,
            grad_modes=_grad_modes(present, call),
            fills=self._method.fills if self._method.settings.on_miss == "pad" else None,
        )
        try:
            with resumed_collection(), normal_modes():
                result = build(request, self._counters)
        except BuildInterrupted as stop:
            if stop.result.variants:
                with contextlib.suppress(Exception):  # the interrupt is what counts
                    self._entry.publish(stop.result, present)
            raise
        self._findings = result.findings
        for error in result.errors:
            logger.error("%s", error)
            self._history.lines.append(f"failed: {error}")
        if not result.variants:
            none = CompileError(self._method.name, "of this call", "no gear was compiled")
            raise result.errors[0] if result.errors else none
        return result

    def _raise_own_error(self, call: Call, spec: GearSpec, result: BuildResult) -> None:
        """Raise the error of the call's own gear, if that failed; the others are stored by then."""
        sizes = call.sizes(spec)
        if spec.axes and len(sizes) == len(spec.axes):
            wanted = gear_text(spec, sizes)
            for error in result.errors:
                if error.gear == wanted:
                    raise error


def _is_edited(variant: StoredVariant, call: Call) -> bool:
    """Whether the source that a variant was traced from is another by now."""
    return changed_source(variant.sources) is not None or changed_function(variant.evidence, call.scope) is not None


def _grad_modes(present: list[StoredVariant], call: Call) -> tuple[bool, ...]:
    """Return the grad modes to build for where the method asks: off as well, unless that is stored."""
    from gearcache.ge_cache.dependencies.autograd_reads import GRAD_MODE

    if not torch.is_grad_enabled():
        return (False,)
    for variant in present:
        rest = [check for check in variant.call_checks if check.access != GRAD_MODE]
        if len(rest) < len(variant.call_checks) and first_failure(rest, Walker(call.scope)) is None:
            return (True,)
    return (False, True)
