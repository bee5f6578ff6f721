"""Serves the calls of one method of one instance under one global state from stored entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from gearcache.cache.keys.fingerprint import is_state_of
from gearcache.errors import CacheError, CaptureError, GearcacheError, GearSpecError, InputError
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.function import are_same_objects, build_dispatch
from gearcache.guards.dispatch.inputs import Problems
from gearcache.guards.dispatch.tensors.native import state_checks
from gearcache.serving.call.call import Call
from gearcache.serving.call.resolved import ResolvedMethod
from gearcache.serving.find.activate import ActiveVariant
from gearcache.serving.find.basis import BindingWatch
from gearcache.serving.find.entry import Entry
from gearcache.serving.find.fit import ArgumentCheck
from gearcache.serving.find.loaded import Answer, Frame, LoadedVariants
from gearcache.serving.find.variants import Variants
from gearcache.telemetry.gear_use import ShapesMet
from gearcache.telemetry.history import History
from gearcache.telemetry.spans import recorder

if TYPE_CHECKING:
    from gearcache.cache.protocol import Store
    from gearcache.guards.dispatch.stored.variant import StoredVariant
    from gearcache.serving.miss.builds import Builds
    from gearcache.serving.miss.impossible_call import ImpossibleCall
    from gearcache.serving.miss.lessons import Lessons
    from gearcache.serving.miss.unserved import UnservedCalls

_MAX_STATES = 4


class Binding:
    """A method's variants and its dispatch. Not thread-safe: its owner locks `prepare`."""

    def __init__(self, method: ResolvedMethod, lessons: dict[str, Lessons], identity: str) -> None:
        """`lessons`: what earlier bindings of the method have learnt of calls without a graph, by their identity."""
        self.method = method
        self._lessons, self._identity = lessons, identity
        self._variants = Variants(method)
        if (trace_recorder := recorder()) is not None:
            from gearcache.serving.call.recorded_calls import RecordedShapes

            trace_recorder.follow(RecordedShapes(method.name, method.spec, self.shapes))
        self._watch = BindingWatch(method.name)
        self._unserved: UnservedCalls | None = None
        self._states: list[Callable[[], bool]] = []
        #: The last dispatch after what it was made from.
        self._made: tuple[list[Any], Callable[..., Any]] | None = None

    @property
    def entry(self) -> Entry:
        """The stored entry."""
        return self._variants.entry

    @property
    def loaded(self) -> LoadedVariants:
        """The loaded variants."""
        return self._variants.loaded

    @property
    def history(self) -> History:
        """The history of the lookups."""
        return self._variants.history

    def loaded_variants(self) -> tuple[list[ActiveVariant], Store]:
        """Return the loaded variants, and the store that has their blobs."""
        return list(self.loaded.variants), self.entry.store

    @property
    def shapes(self) -> ShapesMet:
        """The shapes of calls, and their counts."""
        return self._variants.shapes

    def dispatch(self, miss: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for future calls, valid for the global states seen so far."""
        states, function, scope = self._states, self.method.bound.function, self.method.bound.scope({})
        try:
            unchanged = self._watch.over(self.loaded.bases()) if self.loaded.gears else None
            parts = [*self.loaded.gears, states, unchanged, miss]
            if self._made is not None and are_same_objects(parts, self._made[0]):
                return self._made[1]
            gears, admits = self.method.inputs.for_dispatch(self.loaded.gears, self.method.places)
            if self.method.settings.validate != "inputs":
                admits = None
            is_compared = self._is_compared()
            made = build_dispatch(function, scope, gears, states, unchanged, miss, is_compared, admits)
            self._made = parts, made
            return made
        except Exception as error:
            self._variants.distrust(error)
            return build_dispatch(function, scope, [], states, None, miss)

    def _is_compared(self) -> Callable[[str, int], bool]:
        """Return which dims a lookup compares regardless of the loaded gears: all geared ones, if nothing else checks.

        Otherwise a call of a size that no graph has would get the graph of another one.
        """
        axes = self.method.spec.axes if self.method.settings.validate == "gears" else ()
        return lambda path, dim: any(axis.dim == dim and axis.matches(path) for axis in axes)

    def is_outdated(self, call: Call) -> bool:
        """Whether the basis of the loaded graphs has changed, so that everything has to be looked up again.

        If objects were exchanged but everything that the graphs depend on is unchanged, they stay loaded.
        """
        return self._watch.is_outdated(
            self.loaded.bases(), lambda basis: self.loaded.are_for(call) and basis.is_right(call.scope)
        )

    def holds(self) -> bool:
        """Whether the watch has seen no change of what the loaded graphs rest on."""
        return self._watch.holds()

    def has_weights(self, scope: Scope) -> bool:
        """Whether the weights of all loaded graphs are still in their places."""
        return all(basis.has_weights(scope) for basis in self.loaded.bases())

    def note_state(self) -> None:
        """Accept the current global state, in both grad modes, if it is that of the key of this binding."""
        if is_state_of(self.method.key) and not any(state() for state in self._states):
            self._states = [*state_checks(), *self._states[: _MAX_STATES - 2]]

    def prepare(self, call: Call) -> Frame | None:
        """Make a call possible and return the frame that serves it; None if the method itself has to run.

        It has to run if `on_miss` or the stance says so, or if the host cannot compile and the cache has failed.

        Raises `InputError` or a related error for a call that no graph may take, `CaptureError` and `CompileError` if
        the method or a gear cannot be compiled.
        """
        try:
            answer = self._look_up(call)
            frame = answer.frame or self._unserved_calls().serve(call, answer)
            self._store_served()
            return frame
        finally:
            self.history.tell()

    def forecast(self, call: Call, variants: Sequence[StoredVariant]) -> InputError | str:
        """Return what happens to a call that no graph of some stored variants takes, once all gears are stored.

        That is an error, or the text of a gear that is compiled for it; empty if one of the gears serves it.
        """
        return self._unserved_calls().forecast(call, variants)

    def _store_served(self) -> None:
        """In a prewarm, store in this entry what its siblings serve: it is for hosts that may not have these."""
        if not self.method.serves:
            self._variants.known.adopt_siblings(self.loaded.stored_variants())

    def _look_up(self, call: Call) -> Answer:
        try:
            return self._variants.look_up(call)
        except GearcacheError:
            raise
        except Exception as error:
            return Answer(unloaded=self._variants.distrust(error))

    @property
    def builds(self) -> Builds:
        """The builds of this binding."""
        return self._unserved_calls().builds

    def serves(self, call: Call) -> bool:
        """Whether a loaded graph takes a call, and all possible gears of its spec are loaded."""
        return bool(
            self.loaded.variants
            and not isinstance(self.loaded.find(ArgumentCheck(call)), Problems)
            and not self.builds.missing_gears(call)
        )

    def complete(self, call: Call) -> None:
        """Compile the gears of the spec that are missing for a call that `prepare` has served.

        Gears are missing after an interrupted build or a failed gear. Raises as `prepare` does.
        """
        self.builds.complete(call)
        self._store_served()

    def impossible(self, call: Call) -> ImpossibleCall | None:
        """Return the stored record of a call for which no graph can be made; None if absent or outdated."""
        records = self.entry.impossible_calls()
        if not records:
            return None
        from gearcache.serving.miss.impossible_call import outline_of

        outline = outline_of(call, self.method.settings)
        return next((record for record in records if record.call == outline and record.is_current()), None)

    def note_impossible(self, call: Call, failure: GearcacheError, codes: Iterable[CodeType]) -> bool:
        """Store that no graph can be made for a call, after a trace that went through some code; returns success.

        It is not stored if a compiler failed, which may not fail again, or if the entry cannot be written.
        """
        if not isinstance(failure, (CaptureError, GearSpecError, InputError)):
            return False
        from gearcache.serving.miss.impossible_call import ImpossibleCall, outline_of

        outline = outline_of(call, self.method.settings)
        record = ImpossibleCall.of_code(outline, str(failure), [self.method.bound.function.__code__, *codes])
        try:
            return record is not None and self.entry.note_impossible(record)
        except CacheError:
            return False

    def send(self) -> list[str]:
        """Send the stored entry to the tiers beyond this host, now; returns the problems."""
        return self.builds.tiers.send() if self.method.settings.remotes else []

    def _unserved_calls(self) -> UnservedCalls:
        # A relaunch does not need it, and does not import it.
        from gearcache.serving.miss.lessons import Lessons
        from gearcache.serving.miss.unserved import UnservedCalls

        if self._unserved is None:
            lessons = self._lessons.setdefault(self._identity, Lessons())
            self._unserved = UnservedCalls(self._variants, lessons)
        return self._unserved
