"""One method of one instance under one global state: its entry, its loaded variants, its dispatch."""

from __future__ import annotations

import logging
import time
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gearcache.activate import ActiveVariant, EvidenceCheck, activate, misfit
from gearcache.admission import Admission, DelayedCalls, refuse_gradients
from gearcache.cache import CacheKey, DiskStore, Layout
from gearcache.cache.collection import resumed_collection
from gearcache.call_sizes import call_sizes
from gearcache.entry import Entry
from gearcache.errors import CacheError, CompileError, CorruptEntry, InputError, TooManyVariants
from gearcache.ge_cache.backend import Backend
from gearcache.gear_use import GearUse
from gearcache.guards._native import state_checks
from gearcache.guards.access import Scope
from gearcache.guards.arguments import parameter_names
from gearcache.guards.dispatch import build_dispatch
from gearcache.guards.evidence import changed_function
from gearcache.guards.gears import GearSpec, gear_text
from gearcache.guards.reason import Reason
from gearcache.guards.sources import changed_source
from gearcache.guards.variant import StoredVariant
from gearcache.history import History
from gearcache.loaded import LoadedVariants
from gearcache.options import Settings
from gearcache.problems import Problems
from gearcache.shapes_met import ShapesMet
from gearcache.stats import Counters

if TYPE_CHECKING:
    from gearcache.building.request import BuildResult
    from gearcache.padded_calls import PaddedCalls

logger = logging.getLogger("gearcache")
_MAX_STATES = 4
#: The reasons of a miss, the most telling one first.
_TELLING = ("corrupt", "unloadable", "unreadable", "source", "evidence", "arguments")


class Binding:
    """Serves the calls of one bound method. Not thread safe by itself: its owner holds a lock around `prepare`."""

    def __init__(
        self,
        name: str,
        function: types.MethodType,
        key: CacheKey,
        layout: Layout,
        settings: Settings,
        spec: GearSpec,
        backend: Backend,
        counters: Counters,
        use: GearUse,
        *,
        dynamic: bool | None,
        decompositions: Mapping[Any, Any] | None,
        ge_cache: bool = False,
    ) -> None:
        self.name = name
        self.spec = spec
        self.history = History(name, key.name, counters, strict=settings.strict)
        self.entry = Entry(key, layout, settings, self.history)
        self.loaded = LoadedVariants(name, validate=settings.validate == "inputs")
        self._function = function
        self._method: types.FunctionType = function.__func__  # type: ignore[assignment]
        self._settings = settings
        self._admission = Admission(name, spec, settings.on_miss)
        self._backend = backend
        self._counters = counters
        self._use = use
        self._dynamic = dynamic
        self._decompositions = decompositions
        self._ge_cache = ge_cache
        self._stored: list[StoredVariant] | None = None
        self._states: list[Callable[[], bool]] = []
        self._padded: PaddedCalls | None = None
        self._shapes = ShapesMet(spec)
        self._fixed_ints: set[str] = set()
        self._delayed = DelayedCalls()

    @property
    def backend_name(self) -> str:
        """The name of the backend."""
        return self._backend.name

    def loaded_variants(self) -> tuple[list[ActiveVariant], DiskStore]:
        """Return the variants that are loaded, and the store that has their blobs."""
        return list(self.loaded.variants), self.entry.store

    def shape_dims(self) -> list[tuple[str, int]]:
        """Return the dims that `shape_calls` lists."""
        return self._shapes.dims(self.loaded.variants)

    def shape_calls(self) -> dict[tuple[int, ...], int]:
        """Return calls per shape met."""
        return self._shapes.counts(self.loaded.variants)

    def dispatch(self, miss: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for the calls to come, valid for the global states met so far."""
        states = self._states if self._settings.validate == "inputs" else []
        instance = self._function.__self__
        return build_dispatch(self._method, instance, self.loaded.gears, self.scope({}), states, miss)

    def note_state(self) -> None:
        """Admit the present global state, in both grad modes: it has the key that this binding was made for."""
        if not any(state() for state in self._states):
            self._states = [*state_checks(), *self._states[: _MAX_STATES - 2]]

    def scope(self, arguments: Mapping[str, Any]) -> Scope:
        """Return where the access paths of a call are looked up."""
        method = self._method
        closure = dict(zip(method.__code__.co_freevars, method.__closure__ or (), strict=True))
        instance = {parameter_names(self._function)[0]: self._function.__self__}
        return Scope({**instance, **arguments}, method.__globals__, closure)

    # -- calls -------------------------------------------------------------------------------------------

    def prepare(self, arguments: Mapping[str, Any], stance: str = "default") -> Callable[..., Any] | None:
        """Make a call possible and return the frame that serves it; None when it is to run eagerly.

        That is so where `on_miss` or the stance of `torch.compiler.set_stance` wants no compile.

        Raises `InputError` and its kin for a call that no graph may take, `CaptureError` and `CompileError` when the
        method or a gear cannot be compiled.
        """
        scope = self.scope(arguments)
        problems = Problems()
        misses = self.history.misses
        frame = self.loaded.find(scope, problems)
        if frame is None and self._load_stored(scope):
            frame = self.loaded.find(scope, problems)
        if frame is not None:
            return frame
        try:
            self._admission.refuse(arguments, problems, self.loaded.gear_texts())
        except InputError:
            self._shapes.count_call(arguments)
            raise
        if problems.is_gear_miss and self._settings.on_miss == "eager":
            self._shapes.count_call(arguments)
            self._counters.eager_calls += 1
            return None
        if self._delayed.hold_back(self.name, arguments, stance, self.history.last_miss):
            self._counters.eager_calls += 1
            return None
        refuse_gradients(self.name, arguments)
        is_padded = problems.is_gear_miss and self._settings.on_miss == "pad"
        if is_padded:
            frame = self._pad(arguments, scope)
            if frame is not None:
                return frame
            if self._padded is not None and self._padded.reason is not None:  # the call's own variant is loaded
                raise self._admission.outside(arguments, self._padded.reason)
        if self.history.misses == misses:  # the entry is there, a graph for this call is not
            self._explain_call(problems, scope)
        alone = problems.is_assumption
        self._build(
            arguments,
            scope,
            self._admission.spec_of_build(arguments, lambda: self.missing_gears(scope), alone=alone),
        )
        if is_padded:
            frame = self._pad(arguments, scope)
            if frame is None:
                raise self._admission.outside(arguments, self._padded.reason if self._padded is not None else None)
            return frame
        problems = Problems()
        frame = self.loaded.find(scope, problems)
        if frame is None:
            raise InputError(self.name, *problems.sentence())
        return frame

    def complete(self, arguments: Mapping[str, Any]) -> None:
        """Compile the gears of the spec that are missing for a call that `prepare` has served.

        They are, after a build that was interrupted or in which a gear failed. Raises as `prepare` does.
        """
        scope = self.scope(arguments)
        if self.missing_gears(scope):
            with self.entry.exclusive():
                present = self._read_again()
                self._load_stored(scope, counted=False)
                missing = self.missing_gears(scope)
                if missing:
                    present = self._make_room(present, scope)
                    self.entry.publish(self._compile(arguments, scope, self.spec.only(missing), present), present)
            self._read_again()
            self._load_stored(scope, counted=False)

    def missing_gears(self, scope: Scope) -> list[tuple[int, ...]]:
        """Return the gears of the spec that no loaded variant has for such a call, and that can exist."""
        known = {*self.entry.impossible, *self.loaded.gears_for(scope)}
        return [gear for gear in self.spec.gears if gear_text(self.spec, gear) not in known]

    def _pad(self, arguments: Mapping[str, Any], scope: Scope) -> Callable[..., Any] | None:
        """Return a frame that pads this call to the next gear; None when no loaded gear can serve it so."""
        from gearcache.guards.padding import Fills
        from gearcache.padded_calls import PaddedCalls

        if self._padded is None:
            self._padded = PaddedCalls(Fills(self._settings.pad_values), self._shapes)
        text = gear_text(self.spec, call_sizes(self.spec, arguments))
        made = self._padded.add(self.loaded.variants, scope, text)
        if made is None:
            problem = self._padded.problem
            if problem is not None:
                raise InputError(self.name, problem.argument, problem.found, problem.allowed)
            return None
        active, graph, tensors = made
        self._use.add(text, graph.counter)
        frame = self.loaded.accept(active, graph, tensors, scope)
        self.history.lines.append(f"padded: {text}")
        logger.info("%s: %s is padded to a gear", self.name, text)
        return frame

    def _explain_call(self, problems: Problems, scope: Scope) -> None:
        """Say why no loaded graph serves a call: its sizes, or the arguments that its variants were traced with."""
        problem = problems.decisive()
        if problem is not None:
            text = f"argument `{problem.argument}` is {problem.found}; compiled for {problem.allowed}"
            reasons = [Reason("gear", text, problem.argument, problem.allowed, problem.found)]
        else:
            reasons = self.loaded.misfits(scope)
        if reasons:
            self.history.explain(tuple(reasons))

    # -- stored variants ---------------------------------------------------------------------------------

    def _load_stored(self, scope: Scope, *, counted: bool = True) -> bool:
        """Load the stored variants that fit this call; returns whether there is one.

        `counted=False`: what this process has just stored is no hit.
        """
        begin = time.perf_counter()
        if self._stored is None:
            self._stored = self.entry.read()
        known = {id(active.variant) for active in self.loaded.variants}
        reasons: list[Reason] = []
        variants: list[StoredVariant] = []
        evidence = EvidenceCheck(scope)
        for variant in self._stored:
            if id(variant) in known:
                continue
            reason = misfit(variant, scope) or evidence.stale_reason(variant) or self._activate(variant, scope)
            if reason is None:
                variants.append(variant)
            else:
                reasons.append(reason)
        if variants:
            gears = tuple(gear.text for variant in variants for gear in variant.gears)
            seconds = time.perf_counter() - begin
            self.history.note("load", gears=gears, seconds=seconds, bytes=self.entry.size_of(variants))
            if counted:
                self.history.note("hit", gears=gears)
                self.history.lines.append(f"hit: {self.entry.layout.manifest(self.entry.key)}")
        elif reasons:
            # Of several variants the most telling one: that others take other arguments is no news.
            kinds = {reason.kind for reason in reasons}
            self.history.miss(*dict.fromkeys(reasons), kind=next(kind for kind in _TELLING if kind in kinds))
        return bool(variants)

    def _activate(self, variant: StoredVariant, scope: Scope) -> Reason | None:
        """Load one variant, or return why that cannot be."""
        try:
            active = activate(
                variant,
                scope,
                self._method,
                self._backend,
                self.entry.store,
                validate=self._settings.validate == "inputs",
                folder=self.entry.folder if self._ge_cache else None,
            )
        except CorruptEntry as error:  # quarantined by the store: a miss like any other
            logger.warning("%s: %s", self.name, error)
            return Reason("corrupt", str(error), file=str(error.path))
        except CacheError as error:
            self.history.fault(error)
            return Reason("unloadable", str(error))
        for graph in active.graphs:
            if self._settings.count_shapes and graph.gear.is_dynamic:
                graph.count_shapes()
            self._use.add(graph.gear.text, graph.counter)
        self.loaded.variants.append(active)
        return None

    def _read_again(self) -> list[StoredVariant]:
        """Take in what is stored now beside what is loaded, and return what is stored."""
        present = self.entry.read_again()
        loaded = [active.variant for active in self.loaded.variants]
        self._stored = [*loaded, *_unknown(present, loaded)]
        return present

    # -- builds ------------------------------------------------------------------------------------------

    def _build(self, arguments: Mapping[str, Any], scope: Scope, spec: GearSpec) -> None:
        """Compile under the key's lock, unless another process did it meanwhile; publish; load what was stored."""
        result: BuildResult | None = None
        try:
            with self.entry.exclusive():
                present = self._look_again(scope)
                if present is None:
                    return
                present = self._make_room(present, scope)
                result = self._compile(arguments, scope, spec, present)
                self.entry.publish(result, present)
        except CacheError as error:
            self.history.fault(error)
            if result is None:
                result = self._compile(arguments, scope, spec, [])
            self.entry.use_temporary_store()
            self.entry.publish(result, [])
        self._raise_own_error(arguments, spec, result)
        # Through the same path as a relaunch: what was stored is what runs.
        self._read_again()
        if self.loaded.find(scope, Problems()) is None and not self._load_stored(scope, counted=False):
            reason = self.history.lines[-1] if self.history.lines else "its own evidence does not hold"
            raise CompileError(self.name, "of this call", f"what was compiled cannot be used: {reason}")

    def _look_again(self, scope: Scope) -> list[StoredVariant] | None:
        """Return the variants to keep; None when one that fits this call has appeared and is loaded now."""
        present = self.entry.read_again()
        fresh = _unknown(present, self._stored or [])
        if fresh:
            self._stored = [*(self._stored or []), *fresh]
            if self._load_stored(scope) and self.loaded.find(scope, Problems()) is not None:
                return None
        return present

    def _make_room(self, present: list[StoredVariant], scope: Scope) -> list[StoredVariant]:
        """Return the variants to keep beside a new one; those of edited source go first when there are too many."""
        excess = len(present) + 1 - self._settings.max_variants
        if excess <= 0:
            return present
        edited = [
            variant
            for variant in present
            if changed_source(variant.sources) is not None or changed_function(variant.evidence, scope) is not None
        ][:excess]
        if len(edited) < excess:
            raise TooManyVariants(self.name, self._settings.max_variants, self.history.last_miss)
        return [variant for variant in present if variant not in edited]

    def _compile(
        self, arguments: Mapping[str, Any], scope: Scope, spec: GearSpec, present: list[StoredVariant]
    ) -> BuildResult:
        """Compile the gears of a spec; at Ctrl-C, what was finished is stored beside `present`."""
        # A relaunch does without tracer and compilers, and without importing what drives them.
        from gearcache.building.build import build
        from gearcache.building.request import BuildInterrupted, BuildRequest
        from gearcache.guards.padding import Fills

        is_changing = self._dynamic is None
        request = BuildRequest(
            name=self.name,
            function=self._function,
            arguments={name: value for name, value in arguments.items() if name != parameter_names(self._function)[0]},
            spec=spec,
            dynamic=bool(self._dynamic) and bool(spec.ranges) == bool(self.spec.ranges),
            changing=self._delayed.changing_dims(arguments, scope, self._stored or []) if is_changing else [],
            backend=self._backend,
            options=self._settings.options,
            decompositions=self._decompositions,
            jobs=self._settings.jobs,
            fixed_ints=self._fixed_ints,
            fills=Fills(self._settings.pad_values) if self._settings.on_miss == "pad" else None,
        )
        try:
            with resumed_collection():
                result = build(request, self._counters)
        except BuildInterrupted as stop:
            if stop.result.variants:
                self.entry.publish(stop.result, present)
            raise
        for error in result.errors:
            logger.error("%s", error)
            self.history.lines.append(f"failed: {error}")
        if not result.variants:
            none = CompileError(self.name, "of this call", "no gear was compiled")
            raise result.errors[0] if result.errors else none
        return result

    def _raise_own_error(self, arguments: Mapping[str, Any], spec: GearSpec, result: BuildResult) -> None:
        """Raise the error of the call's own gear, if that failed; the others are stored by then."""
        sizes = call_sizes(spec, arguments)
        if spec.axes and len(sizes) == len(spec.axes):
            wanted = gear_text(spec, sizes)
            for error in result.errors:
                if error.gear == wanted:
                    raise error


def _unknown(variants: list[StoredVariant], known: list[StoredVariant]) -> list[StoredVariant]:
    """Return the variants that are not among the known ones."""
    texts = {repr(variant.to_plain()) for variant in known}
    return [variant for variant in variants if repr(variant.to_plain()) not in texts]
