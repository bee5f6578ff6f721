"""Compiles missing gears under the lock of the key, and keeps what other processes store in the meantime."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gearcache.errors import (
    CacheError,
    CaptureError,
    CompileError,
    GearcacheError,
    LockTimeout,
    MissingTorchNames,
    ModuleChanged,
    TooManyVariants,
)
from gearcache.guards.access import Access
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import MISFITS
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import evidence_failure
from gearcache.guards.gears.parse import GearSpec, gear_text
from gearcache.serving.call.call import Call
from gearcache.serving.call.failures import is_probe_fault, warn_lacking
from gearcache.serving.find.loaded import Answer
from gearcache.serving.find.variants import Variants
from gearcache.serving.fleet.entry_tiers import EntryTiers, work_text
from gearcache.serving.miss.compiles import Compiles
from gearcache.serving.miss.host_faults import keeps_from_compiling
from gearcache.serving.miss.missing_gears import missing_gears, problems_of
from gearcache.serving.miss.outdated import are_of_one_trace, outdated

if TYPE_CHECKING:
    from gearcache.building.request import BuildResult

#: The digests of a compiled variant, before its compile and as stored (`building/digests.py`).
Made = tuple[str, str]
_INCOMPLETE = "gears of it are missing"
#: Problems of a tensor that another one at its place may not have.
_OF_LAYOUT = ("rank", "stride", "shape", "dtype", "device")


class Builds:
    """The builds of one binding: each is stored, and then loaded as a relaunch loads it."""

    def __init__(self, variants: Variants) -> None:
        self.variants = variants
        self._method, self._entry, self._history = variants.method, variants.entry, variants.history
        self.tiers = EntryTiers(variants)
        self.compiles = Compiles(variants)
        #: The digests of variants that were compiled for a job.
        self.made: list[Made] = []

    def build(self, call: Call, spec: GearSpec, why: str, *, is_padded: bool = False) -> Answer | str:
        """Compile under the key's lock, unless another process did it in the meantime; publish; load the stored result.

        Returns what the loaded graphs answer. If the cache fails, the result is loaded from memory. If that is
        impossible, or the host lacks something that a compile needs, the method itself has to serve the call: returns
        the reason, as in `EAGER_REASONS`. `why` is the reason why no stored graph serves the call, for errors.
        `is_padded`: a larger gear is to serve the call.
        """
        try:
            with contextlib.ExitStack() as lock, self.tiers.giving_up():
                present = self._begin(lock, call, spec, why, is_padded=is_padded)
                if isinstance(present, Answer):
                    return present
                result = self.compiles.compile(call, spec, present, why)
                is_kept = self._keep(result, present)
                self.tiers.offer()
            self._raise_own_error(call, spec, result)
            return (self._load(call, result) if is_kept else None) or self._load_from_memory(result, call) or "fault"
        except MissingTorchNames as error:
            self._history.lacks(error)
            warn_lacking(error)
            return "torch"
        except CaptureError as error:
            if not is_probe_fault(error):
                raise
            self._history.fault(error)
            return "torch"
        except Exception as error:
            if not keeps_from_compiling(error) or (isinstance(error, CacheError) and not self._method.serves):
                raise
            self._history.fault(error)
            self._history.lead(why)  # the user should fix this first: a stored graph would need no compile
            return "fault"

    def _begin(
        self, lock: contextlib.ExitStack, call: Call, spec: GearSpec, why: str, *, is_padded: bool
    ) -> list[StoredVariant] | Answer:
        """Lock the key, and return the variants to keep; or the answer, if one that serves this call has appeared.

        Another process of this host may have stored it, or it may be in a tier.
        """
        try:
            lock.enter_context(self._entry.exclusive())
            present = self._look_again(call, is_padded=is_padded)
        except Exception as error:
            self._fault(error)
            self._entry.use_memory()
            present = []
        try:
            if not isinstance(present, Answer) and (remote := self.tiers.remote()) is not None:

                def is_served() -> bool:
                    nonlocal present
                    present = self._look_again(call, is_padded=is_padded)
                    return isinstance(present, Answer)

                if remote.obtain(self.tiers.wanted(call, spec, present, is_served, any_sizes=is_padded)):
                    self._history.uncounted.clear()  # a tier had it: no miss caused a compile
                    return present
                present = self._look_again(call, is_padded=is_padded)
            return present if isinstance(present, Answer) else self._make_room(self.variants.sound(present), call, why)
        except Exception as error:
            self.tiers.give_up()
            self._fault(error)
            self._entry.use_memory()
            return []

    def fetch(self, call: Call) -> None:
        """Fetch what the tiers have for a call, without waiting for other hosts."""
        remote = self.tiers.remote()
        if remote is None or self._entry.is_in_memory:
            return
        with self._entry.exclusive():
            present, _ = self._load_present(call)
            spec = call.spec(self._method.spec)
            remote.fetch(
                self.tiers.wanted(call, spec, present, lambda: not self._load_present(call)[1], any_sizes=True)
            )
        self.variants.read_again()

    def prepare_fork(self, call: Call, spec: GearSpec) -> str:
        """Open the tiers, which a forked process shares with this one; returns the argument for `take_over`."""
        return work_text(call, spec, self._method.parameters.dynamic) if self.tiers.remote() is not None else ""

    def take_over(self, work: str) -> None:
        """Send what a forked process has compiled."""
        if (remote := self.tiers.remote()) is not None:
            remote.take_over(work)

    def _keep(self, result: BuildResult, present: list[StoredVariant]) -> bool:
        """Publish a build; returns whether that was possible."""
        try:
            self._entry.publish(result, present)
        except Exception as error:
            self._fault(error)
            return False
        self._note_made(result)
        return True

    def _note_made(self, result: BuildResult) -> None:
        if self._method.right.is_granted and not self._entry.is_in_memory:
            from gearcache.building.digests import stored_digest

            for item in result.variants:
                gears = [
                    replace(gear, blobs={name: sha256(data).hexdigest() for name, data in artifact.blobs.items()})
                    for gear, artifact in zip(item.variant.gears, item.artifacts, strict=True)
                ]
                self.made.append((item.digest, stored_digest(replace(item.variant, gears=gears))))

    def _load(self, call: Call, result: BuildResult) -> Answer | None:
        """Load the published variants on the same path as a relaunch, so that the stored result is what runs."""
        try:
            self.variants.read_again()
            answer = self.variants.look_up(call, counted=False)
        except Exception as error:
            self._fault(error)
            return None
        if answer.frame is None and (answer.unloaded is None or answer.unloaded.kind in ("", *MISFITS)):
            self._check_unchanged(call, result)
        if answer.unloaded is None or (not answer.unloaded.kind and self._is_loaded(result)):
            return answer
        text = f"what was compiled cannot be used: {answer.unloaded.text or 'it is not there any more'}"
        if answer.unloaded.kind in MISFITS:
            raise CompileError(self._method.name, "of this call", text)
        self._history.fault(CacheError(text))
        return None

    def _check_unchanged(self, call: Call, result: BuildResult) -> None:
        """Raise `ModuleChanged` if what was compiled does not serve because another thread has changed the module."""
        made = [item.variant for item in result.variants]
        failures = [evidence_failure(variant.evidence, call.scope) for variant in made]
        causes = list(dict.fromkeys(map(str, failures)))
        if None in failures:
            problems = [problem for variant in made for problem in problems_of(variant, call)]
            causes = [
                f"`{problem.argument}` is {problem.value}; compiled for {problem.allowed}"
                for problem in filter(None, problems)
                if problem.kind in _OF_LAYOUT and re.split(r"\W", problem.argument)[0] not in call.given
            ]
            if None in problems and not any(changed_source(variant.sources) for variant in made):
                causes = ["another thread changed it, and back"]
        if causes:
            raise ModuleChanged(self._method.name, "of this call", "; ".join(causes))

    def _is_loaded(self, result: BuildResult) -> bool:
        """Whether a build has made nothing but what this process has loaded: a call that it serves only when padded."""
        loaded = self.variants.loaded.stored_variants()
        return all(any(are_of_one_trace(item.variant, each) for each in loaded) for item in result.variants)

    def _load_from_memory(self, result: BuildResult, call: Call) -> Answer | None:
        self._entry.use_memory()
        return self._load(call, result) if self._keep(result, []) else None

    def _fault(self, error: Exception) -> None:
        # If other ranks of a job wait for this one, it must not compile while another process holds the lock.
        if isinstance(error, LockTimeout) and self._method.right.is_granted:
            raise error
        if not self._method.serves:  # a prewarm has done nothing for a graph that is not stored
            raise error if isinstance(error, GearcacheError) else CacheError(f"{type(error).__name__}: {error}")
        self._history.fault_or_raise(error)

    def complete(self, call: Call) -> None:
        """Compile the gears of the spec that are missing for a call that a loaded graph serves."""
        if self.missing_gears(call):
            with self._entry.exclusive(), self.tiers.giving_up():
                present, missing = self._load_present(call)
                if missing and (remote := self.tiers.remote()) is not None:
                    spec = call.spec(self._method.spec).only(missing)
                    remote.obtain(
                        self.tiers.wanted(call, spec, present, lambda: not self._load_present(call)[1], any_sizes=True)
                    )
                    present, missing = self._load_present(call)
                if missing:
                    spec = call.spec(self._method.spec).only(missing)
                    present = self._make_room(present, call, _INCOMPLETE)
                    result = self.compiles.compile(call, spec, present, _INCOMPLETE)
                    self._entry.publish(result, present)
                    self._note_made(result)
                    self.tiers.offer()
            self.variants.read_again()
            self.variants.load(call, counted=False)

    def _load_present(self, call: Call) -> tuple[list[StoredVariant], list[tuple[int, ...]]]:
        """Load what is stored by now for a call; returns the stored variants, and the missing gears."""
        present = self.variants.read_again()
        self.variants.load(call, counted=False)
        return present, self.missing_gears(call)

    def missing_gears(self, call: Call) -> list[tuple[int, ...]]:
        """Return the possible gears of the spec that no loaded variant has for such a call."""
        return missing_gears(self.variants.loaded.stored_variants(), call, call.spec(self._method.spec))

    def _look_again(self, call: Call, *, is_padded: bool) -> list[StoredVariant] | Answer:
        """Return the variants to keep; or the answer, if one that serves this call has appeared and is loaded now."""
        present, is_fresh = self.variants.known.take_fresh()
        if not is_fresh:
            return present
        answer = self.variants.look_up(call)
        # A graph of a padded call's own sizes is never stored: all gears that a build could make are there.
        is_complete = is_padded and answer.unloaded is None and not self.missing_gears(call)
        return answer if answer.frame is not None or is_complete else present

    def _make_room(self, present: list[StoredVariant], call: Call, why: str) -> list[StoredVariant]:
        """Return the variants to keep beside a new one; if there are too many, those of other code and facts go."""
        limit = self._method.settings.max_variants
        excess = len(present) + 1 - limit
        if excess <= 0:
            return present
        # A fact that changes again and again in this process would have each call compile.
        dropped = outdated(present, call, excess, most_left_over=limit - self._method.counters.traces)
        if len(dropped) < excess:
            raise TooManyVariants(self._method.name, limit, why + _about_constants(present))
        return [variant for variant in present if all(variant is not each for each in dropped)]

    def _raise_own_error(self, call: Call, spec: GearSpec, result: BuildResult) -> None:
        """Raise the error of the call's own gear, if it failed; the other gears are stored by then."""
        sizes = call.sizes(spec)
        if spec.axes and len(sizes) == len(spec.axes):
            own_gear = gear_text(spec, sizes)
            for error in result.errors:
                if error.gear == own_gear:
                    raise error


def _about_constants(variants: list[StoredVariant]) -> str:
    """Return which ints and floats have a variant for each value although they may vary, and why."""
    causes = {
        Access.from_plain(path).text: variant.constants_because
        for variant in variants
        if variant.constants_because
        for path in variant.constants
    }
    needed = Counter(row for variant in variants for row in variant.needed.items())
    causes |= {path: f"the trace needs its value: {line}" for (path, line), count in needed.items() if count > 1}
    texts = [f"`{path}` is a constant of each variant, because {cause}" for path, cause in sorted(causes.items())]
    static = Counter(variant.static_because for variant in variants if variant.static_because)
    texts += [f"sizes that vary have a variant for each value, because {cause}" for cause, _ in static.most_common(1)]
    return f" ({'; '.join(texts)})" if texts else ""
