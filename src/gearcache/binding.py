"""One method of one instance under one global state: its entry, its loaded variants, its dispatch."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gearcache.activate import ActiveVariant, EvidenceCheck, activate, fits_call, misfit
from gearcache.cache import CacheKey, DiskStore, Hit, Layout, Limits, Manifest, Miss, Signer
from gearcache.cache.tally import count_misses
from gearcache.call_sizes import call_sizes, differing_dims
from gearcache.collection import resumed_collection
from gearcache.errors import (
    CacheError,
    CompileError,
    CorruptEntry,
    GradientRequired,
    InputError,
    RecompileRefused,
    TooManyVariants,
    UnknownGear,
)
from gearcache.events import Event, Kind
from gearcache.ge_cache.backend import Backend
from gearcache.gear_use import GearUse
from gearcache.guards._native import state_checks
from gearcache.guards.access import Scope
from gearcache.guards.arguments import find_tensors, parameter_names
from gearcache.guards.dispatch import BoundGear, build_dispatch
from gearcache.guards.evidence import changed_function
from gearcache.guards.gears import GearSpec, gear_text
from gearcache.guards.graph_call import GraphCall
from gearcache.guards.inputs import GRADIENT_WORDS, Problem, find_problem
from gearcache.guards.memory import find_overlap
from gearcache.guards.reason import Reason
from gearcache.guards.sources import changed_source
from gearcache.guards.variant import StoredVariant, entry_from_plain, entry_to_plain
from gearcache.options import Settings
from gearcache.problems import Problems, broken_condition
from gearcache.shapes_met import ShapesMet
from gearcache.stance import DELAYED
from gearcache.stats import Counters

if TYPE_CHECKING:
    from gearcache.build import BuildResult
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
        self.key = key
        self.layout = layout
        self._function = function
        self._method: types.FunctionType = function.__func__  # type: ignore[assignment]
        self._settings = settings
        self.spec = spec
        self._backend = backend
        self._counters = counters
        self._use = use
        self._dynamic = dynamic
        self._decompositions = decompositions
        self._ge_cache = ge_cache
        self._store = self._open_store(layout)
        self._stored: list[StoredVariant] | None = None
        self._active: list[ActiveVariant] = []
        self._gears: list[BoundGear] = []
        self._states: list[Callable[[], bool]] = []
        self._temporary: Path | None = None
        self._padded: PaddedCalls | None = None
        self._shapes = ShapesMet(spec)
        self._fixed_ints: set[str] = set()
        #: Sizes by path of the calls that a delaying stance passed on to eager.
        self._delayed: list[dict[str, tuple[int, ...]]] = []
        self._blob_sizes: Mapping[str, int] = {}
        self._impossible: list[str] = []
        #: Reasons of misses that the cache does not know yet: it is told when it is there, before a compile.
        self._uncounted: list[str] = []
        self.history: list[str] = []

    def shape_dims(self) -> list[tuple[str, int]]:
        """Return the dims that `shape_calls` lists."""
        return self._shapes.dims(self._active)

    def shape_calls(self) -> dict[tuple[int, ...], int]:
        """Return calls per shape met."""
        return self._shapes.counts(self._active)

    def gear_texts(self) -> list[str]:
        """Return the loaded gears."""
        return [graph.gear.text for active in self._active for graph in active.graphs]

    def dispatch(self, miss: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for the calls to come, valid for the global states met so far."""
        states = self._states if self._settings.validate == "inputs" else []
        instance = self._function.__self__
        return build_dispatch(self._method, instance, self._gears, self.scope({}), states, miss)

    def note_state(self) -> None:
        """Admit the present global state, in both grad modes: it has the key that this binding was made for."""
        if not any(state() for state in self._states):
            self._states = [*state_checks(), *self._states[: _MAX_STATES - 2]]

    def prepare(self, arguments: Mapping[str, Any], stance: str = "default") -> Callable[..., Any] | None:
        """Make a call possible and return the frame that serves it; None when it is to run eagerly.

        That is so where `on_miss` or the stance of `torch.compiler.set_stance` wants no compile.

        Raises `InputError` and its kin for a call that no graph may take, `CaptureError` and `CompileError` when the
        method or a gear cannot be compiled.
        """
        scope = self.scope(arguments)
        problems = Problems()
        misses = self._counters.misses
        frame = self._find_active(scope, problems)
        if frame is None and self._load_stored(scope):
            frame = self._find_active(scope, problems)
        if frame is not None:
            return frame
        try:
            self._refuse(arguments, problems)
        except InputError:
            self._shapes.count_call(arguments)
            raise
        if problems.is_gear_miss and self._settings.on_miss == "eager":
            self._shapes.count_call(arguments)
            self._counters.eager_calls += 1
            return None
        if self._is_held_back(arguments, stance):
            self._counters.eager_calls += 1
            return None
        self._refuse_gradients(arguments)
        is_padded = problems.is_gear_miss and self._settings.on_miss == "pad"
        if is_padded:
            frame = self._pad(arguments, scope)
            if frame is not None:
                return frame
            if self._padded is not None and self._padded.reason is not None:  # the call's own variant is loaded
                raise self._outside(arguments, self._padded.reason)
        if self._counters.misses == misses:  # the entry is there, a graph for this call is not
            self._explain_call(problems, scope)
        self._build(arguments, scope, self._spec_of_build(arguments, alone=problems.is_assumption))
        if is_padded:
            frame = self._pad(arguments, scope)
            if frame is None:
                raise self._outside(arguments, self._padded.reason if self._padded is not None else None)
            return frame
        problems = Problems()
        frame = self._find_active(scope, problems)
        if frame is None:
            raise InputError(self.name, *problems.sentence())
        return frame

    def _pad(self, arguments: Mapping[str, Any], scope: Scope) -> Callable[..., Any] | None:
        """Return a frame that pads this call to the next gear; None when no loaded gear can serve it so."""
        from gearcache.guards.padding import Fills
        from gearcache.padded_calls import PaddedCalls

        if self._padded is None:
            self._padded = PaddedCalls(Fills(self._settings.pad_values), self._shapes)
        text = gear_text(self.spec, call_sizes(self.spec, arguments))
        made = self._padded.add(self._active, scope, text)
        if made is None:
            problem = self._padded.problem
            if problem is not None:
                raise InputError(self.name, problem.argument, problem.found, problem.allowed)
            return None
        active, graph, tensors = made
        self._use.add(text, graph.counter)
        self._check_overlap(active.variant, graph, tensors)
        self.history.append(f"padded: {text}")
        logger.info("%s: %s is padded to a gear", self.name, text)
        return self._accept(active, graph, tensors, scope)

    def _outside(self, arguments: Mapping[str, Any], reason: str | None = None) -> UnknownGear:
        listed = "; ".join(gear_text(self.spec, gear) for gear in self.spec.gears)
        found = f"outside all gears: {gear_text(self.spec, call_sizes(self.spec, arguments))}"
        if reason:
            listed += f" (padding: {reason})"
        return UnknownGear(self.name, self.spec.axes[0].path, found, listed)

    def complete(self, arguments: Mapping[str, Any]) -> None:
        """Compile the gears of the spec that are missing for a call that `prepare` has served.

        They are, after a build that was interrupted or in which a gear failed. Raises as `prepare` does.
        """
        scope = self.scope(arguments)
        if self.missing_gears(scope):
            with self._store.exclusive(self.key):
                present = self._read_again()
                self._load_stored(scope, counted=False)
                missing = self.missing_gears(scope)
                if missing:
                    present = self._make_room(present, scope)
                    self._publish(self._compile(arguments, scope, self.spec.only(missing), present), present)
            self._read_again()
            self._load_stored(scope, counted=False)

    def missing_gears(self, scope: Scope) -> list[tuple[int, ...]]:
        """Return the gears of the spec that no loaded variant has for such a call, and that can exist."""
        known = set(self._impossible)
        for active in self._active:
            if self._takes(active.variant, scope):
                known.update(graph.gear.text for graph in active.graphs)
        return [gear for gear in self.spec.gears if gear_text(self.spec, gear) not in known]

    def look_up(self) -> tuple[Manifest | None, str]:
        """Return the stored entry, or why there is none; counts nothing."""
        try:
            found = self._store.lookup(self.key)
        except CacheError as error:
            return None, str(error)
        return (found.manifest, "") if isinstance(found, Hit) else (None, f"{found.reason.value}: {found.detail}")

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is stored, unverified."""
        return self._store.has_blob(digest)

    # -- loaded variants ---------------------------------------------------------------------------------

    def _find_active(self, scope: Scope, problems: Problems) -> Callable[..., Any] | None:
        for active in self._active:
            if fits_call(active.variant, scope) is not None:
                continue
            try:
                tensors = tuple(stored.access.resolve(scope) for stored in active.variant.inputs)
            except (LookupError, AttributeError, TypeError):
                continue
            for graph in active.graphs:
                problem = find_problem(active.variant.inputs, graph.gear, tensors) or broken_condition(graph, tensors)
                if problem is None:
                    self._check_overlap(active.variant, graph, tensors)
                    return self._accept(active, graph, tensors, scope)
                problems.add(problem, graph.gear.text)
        return None

    def _accept(
        self, active: ActiveVariant, graph: GraphCall, tensors: tuple[torch.Tensor, ...], scope: Scope
    ) -> Callable[..., Any]:
        if self._settings.validate == "inputs" and not graph.admits(tensors):
            for sibling in active.graphs:
                sibling.accept(tensors)
            self._accept_others(active, scope)
        self._rebind()
        return next(bound.frame for bound in self._gears if bound.gear is graph.gear)

    def _accept_others(self, present: ActiveVariant, scope: Scope) -> None:
        """Ready the other variants that take such arguments: their first call then needs no second look."""
        for active in self._active:
            if active is present or any(graph.is_ready for graph in active.graphs):
                continue
            if fits_call(active.variant, scope) is None:
                tensors = tuple(stored.access.resolve(scope) for stored in active.variant.inputs)
                if all(isinstance(tensor, torch.Tensor) for tensor in tensors):
                    for graph in active.graphs:
                        graph.accept(tensors)

    def _rebind(self) -> None:
        self._gears = [bound for active in self._active for bound in active.bound_gears()]

    def _check_overlap(self, variant: StoredVariant, graph: GraphCall, tensors: tuple[torch.Tensor, ...]) -> None:
        overlap = find_overlap(tensors, graph.gear.written)
        if overlap is not None:
            written, other = (variant.inputs[index].access.text for index in overlap)
            raise InputError(
                self.name,
                written,
                f"written, and shares memory with `{other}`",
                "tensors that do not overlap",
            )

    def _takes(self, variant: StoredVariant, scope: Scope) -> bool:
        """Whether a variant takes such a call at some sizes."""
        if fits_call(variant, scope) is not None:
            return False
        try:
            tensors = tuple(stored.access.resolve(scope) for stored in variant.inputs)
        except (LookupError, AttributeError, TypeError):
            return False
        problem = find_problem(variant.inputs, variant.gears[0], tensors)
        return problem is None or problem.kind in ("shape", "stride")

    # -- stored variants ---------------------------------------------------------------------------------

    def _load_stored(self, scope: Scope, *, counted: bool = True) -> bool:
        """Load the stored variants that fit this call; returns whether there is one.

        `counted=False`: what this process has just stored is no hit.
        """
        begin = time.perf_counter()
        if self._stored is None:
            self._stored = self._read_entry()
        known = {id(active.variant) for active in self._active}
        reasons: list[Reason] = []
        loaded: list[ActiveVariant] = []
        evidence = EvidenceCheck(scope)
        for variant in self._stored:
            if id(variant) in known:
                continue
            reason = misfit(variant, scope) or evidence.stale_reason(variant)
            if reason is not None:
                reasons.append(reason)
                continue
            try:
                active = activate(
                    variant,
                    scope,
                    self._method,
                    self._backend,
                    self._store,
                    validate=self._settings.validate == "inputs",
                    folder=self._folder if self._ge_cache else None,
                )
            except CorruptEntry as error:  # quarantined by the store: a miss like any other
                logger.warning("%s: %s", self.name, error)
                reasons.append(Reason("corrupt", str(error), file=str(error.path)))
                continue
            except CacheError as error:
                self._fault(error)
                reasons.append(Reason("unloadable", str(error)))
                continue
            if self._settings.count_shapes:
                for graph in active.graphs:
                    if graph.gear.is_dynamic:
                        graph.count_shapes()
            self._active.append(active)
            for graph in active.graphs:
                self._use.add(graph.gear.text, graph.counter)
            loaded.append(active)
        if loaded:
            gears = tuple(gear.text for active in loaded for gear in active.variant.gears)
            digests = {digest for active in loaded for gear in active.variant.gears for digest in gear.blobs.values()}
            size = sum(self._blob_sizes.get(digest, 0) for digest in digests)
            self._note("load", gears=gears, seconds=time.perf_counter() - begin, bytes=size)
            if counted:
                self._note("hit", gears=gears)
                self.history.append(f"hit: {self.layout.manifest(self.key)}")
        elif reasons:
            # Of several variants the most telling one: that others take other arguments is no news.
            kinds = {reason.kind for reason in reasons}
            self._miss(*dict.fromkeys(reasons), kind=next(kind for kind in _TELLING if kind in kinds))
        return bool(loaded)

    def _read_entry(self) -> list[StoredVariant]:
        try:
            self._store.use(self.key)  # from here on, nobody evicts it
            found = self._store.lookup(self.key)
        except CacheError as error:
            self._fault(error)
            return []
        if not isinstance(found, Hit):
            self._miss(_reason_of(found), kind=found.reason.value)
            return []
        self._store.count_load(self.key)
        return self.read_variants(found.manifest)

    def read_variants(self, manifest: Manifest | None) -> list[StoredVariant]:
        """Decode the variants of an entry; what cannot be read is a miss."""
        if manifest is None:
            return []
        self._blob_sizes = manifest.blobs
        try:
            self._impossible = [str(text) for text in manifest.payload.get("impossible", [])]  # type: ignore[union-attr]
            return entry_from_plain(manifest.payload)
        except (LookupError, TypeError, ValueError) as error:
            text = f"the variants of {manifest.name} cannot be read: {type(error).__name__}: {error}"
            self._miss(Reason("unreadable", text), kind="unreadable")
            return []

    def _note(self, kind: Kind, **fields: Any) -> None:
        self._counters.note(Event(kind, self.name, self.key.name, **fields))

    def _miss(self, *reasons: Reason, kind: str) -> None:
        """Count one miss; one reason per stored variant that did not do, of which `kind` is the most telling."""
        text = "; ".join(str(reason) for reason in reasons)
        self._note("miss", reason=kind, detail=text)
        self._uncounted.append(kind)
        self._explain(text, reasons)

    def _explain(self, text: str, reasons: tuple[Reason, ...]) -> None:
        self._counters.reasons.extend(reasons)
        self.history.extend(line for reason in reasons for line in reason.explained())
        logger.info("%s: miss: %s", self.name, text)

    def _explain_call(self, problems: Problems, scope: Scope) -> None:
        """Say why no loaded graph serves a call: its sizes, or the arguments that its variants were traced with."""
        problem = problems.decisive()
        if problem is not None:
            text = f"argument `{problem.argument}` is {problem.found}; compiled for {problem.allowed}"
            reasons = [Reason("gear", text, problem.argument, problem.allowed, problem.found)]
        else:
            reasons = [reason for active in self._active if (reason := misfit(active.variant, scope)) is not None]
        if reasons:
            self._explain("; ".join(str(reason) for reason in reasons), tuple(reasons))

    def _fault(self, error: CacheError) -> None:
        """The one failure policy: a fault of the cache never breaks the model, unless `strict`."""
        if self._settings.strict:
            raise error
        self._note("fault", detail=str(error))
        self.history.append(f"fault: {error}")
        logger.warning("%s: the cache cannot be used: %s", self.name, error)

    # -- misses ------------------------------------------------------------------------------------------

    def _refuse(self, arguments: Mapping[str, Any], problems: Problems) -> None:
        """Raise for a call that must not be compiled: a wrong tensor, or a shape outside the declared gears."""
        sizes = call_sizes(self.spec, arguments)
        is_complete = bool(self.spec.axes) and len(sizes) == len(self.spec.axes)
        gear = gear_text(self.spec, sizes) if is_complete else None
        problem = problems.decisive(gear)
        if problem is not None and problem.kind == "grad":
            raise GradientRequired(self.name, problem.argument, problem.found, problem.allowed)
        if problem is not None and problem.kind not in ("shape", "alias", "rank"):
            raise InputError(self.name, problem.argument, problem.found, problem.allowed)
        if problem is not None and problem.kind == "rank" and self._settings.on_miss == "raise":
            raise InputError(self.name, problem.argument, problem.found, problem.allowed)
        outside = self.spec.range_problem(find_tensors(arguments))
        if outside is not None:
            if self._settings.on_miss in ("raise", "pad"):
                raise UnknownGear(self.name, *outside)
            problems.is_gear_miss = True
            return
        is_declared = problem is not None and self._is_declared(problem)
        if not self.spec.axes:
            if problem is not None and self._settings.on_miss == "raise" and not is_declared:
                raise InputError(self.name, problem.argument, problem.found, problem.allowed)
            return
        if is_complete and sizes not in self.spec.gears:
            if self._settings.on_miss == "raise":
                raise self._outside(arguments)
            problems.is_gear_miss = True
            return
        is_loaded = problem is not None and gear in self.gear_texts()
        problems.is_assumption = is_loaded and problem is not None and problem.is_assumption
        is_allowed = is_declared or problems.is_assumption
        if problem is not None and is_loaded and self._settings.on_miss == "raise" and not is_allowed:
            raise InputError(self.name, problem.argument, problem.found, problem.allowed)

    def _is_declared(self, problem: Problem) -> bool:
        """Whether only dims differ that the spec declares to be of any size in a range (1 needs another trace)."""
        axes = [axis for axis in self.spec.dynamic_axes if axis.matches(problem.argument)]
        return problem.kind == "shape" and bool(problem.dims) and set(problem.dims) <= {axis.dim for axis in axes}

    def _is_held_back(self, arguments: Mapping[str, Any], stance: str) -> bool:
        """Whether the stance has a call run eagerly that would have to compile; `RecompileRefused` if it forbids it."""
        if stance == "fail_on_recompile":
            raise RecompileRefused(self.name, self._last_miss())
        if stance in DELAYED and not self._delayed:
            tensors = find_tensors(arguments)
            self._delayed.append({path: tuple(tensor.shape) for path, tensor in tensors.items()})
            return True
        return stance == "eager_on_recompile"

    def _changing_dims(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[torch.Tensor, int]]:
        """Return the dims in which a call differs from those before: with `dynamic=None` they become dynamic."""
        tensors = find_tensors(arguments)
        found = [
            (tensor, dim)
            for sizes in self._delayed
            for path, tensor in tensors.items()
            for dim in differing_dims(tensor, sizes.get(path, ()))
        ]
        for variant in self._stored or []:
            if fits_call(variant, scope) is None:
                for stored, index in zip(variant.inputs, range(len(variant.inputs)), strict=True):
                    tensor = stored.access.resolve(scope)
                    for gear in variant.gears:
                        found += [(tensor, dim) for dim in differing_dims(tensor, gear.sizes[index])]
        return found

    def _refuse_gradients(self, arguments: Mapping[str, Any]) -> None:
        if torch.is_grad_enabled():
            for path, tensor in find_tensors(arguments).items():
                if tensor.requires_grad:
                    raise GradientRequired(self.name, path, *GRADIENT_WORDS)

    def _spec_of_build(self, arguments: Mapping[str, Any], *, alone: bool) -> GearSpec:
        """Return the gears to compile for a call: all that are missing; just its own if `alone` or not in the spec."""
        spec = self.spec
        if spec.range_problem(find_tensors(arguments)) is not None:
            spec, alone = replace(spec, ranges=()), True
        sizes = call_sizes(spec, arguments)
        if not spec.axes or len(sizes) != len(spec.axes):
            return spec
        if alone or (sizes not in spec.gears and self._settings.on_miss != "pad"):
            return spec.only([sizes])
        missing = self.missing_gears(self.scope(arguments))
        if not missing and spec.dynamic_axes:  # size 1 of a range
            return spec.only([sizes])
        return spec.only(missing) if len(missing) < len(spec.gears) and sizes in missing else spec

    def _build(self, arguments: Mapping[str, Any], scope: Scope, spec: GearSpec) -> None:
        """Compile under the key's lock, unless another process did it meanwhile; publish; load what was stored."""
        result: BuildResult | None = None
        try:
            with self._store.exclusive(self.key):
                count_misses(self.layout, self._uncounted)
                self._uncounted.clear()
                present = self._look_again(scope)
                if present is None:
                    return
                present = self._make_room(present, scope)
                result = self._compile(arguments, scope, spec, present)
                self._publish(result, present)
        except CacheError as error:
            self._fault(error)
            if result is None:
                result = self._compile(arguments, scope, spec, [])
            self._use_temporary_store()
            self._publish(result, [])
        self._raise_own_error(arguments, spec, result)
        if not self._load_built(scope):
            reason = self.history[-1] if self.history else "its own evidence does not hold"
            raise CompileError(self.name, "of this call", f"what was compiled cannot be used: {reason}")

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
            raise TooManyVariants(self.name, self._settings.max_variants, self._last_miss())
        return [variant for variant in present if variant not in edited]

    def _look_again(self, scope: Scope) -> list[StoredVariant] | None:
        """Return the variants to keep; None when one that fits this call has appeared and is loaded now."""
        found = self._store.lookup(self.key, explain=False)
        present = self.read_variants(found.manifest) if isinstance(found, Hit) else []
        known = {repr(variant.to_plain()) for variant in self._stored or []}
        fresh = [variant for variant in present if repr(variant.to_plain()) not in known]
        if fresh:
            self._stored = [*(self._stored or []), *fresh]
            if self._load_stored(scope) and self._find_active(scope, Problems()) is not None:
                return None
        return present

    def _compile(
        self, arguments: Mapping[str, Any], scope: Scope, spec: GearSpec, present: list[StoredVariant]
    ) -> BuildResult:
        """Compile the gears of a spec; at Ctrl-C, what was finished is stored beside `present`."""
        # A relaunch does without tracer and compilers, and without importing what drives them.
        from gearcache.build import BuildInterrupted, BuildRequest, build
        from gearcache.guards.padding import Fills

        request = BuildRequest(
            name=self.name,
            function=self._function,
            arguments={name: value for name, value in arguments.items() if name != parameter_names(self._function)[0]},
            spec=spec,
            dynamic=bool(self._dynamic) and bool(spec.ranges) == bool(self.spec.ranges),
            changing=self._changing_dims(arguments, scope) if self._dynamic is None else [],
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
                self._publish(stop.result, present)
            raise
        for error in result.errors:
            logger.error("%s", error)
            self.history.append(f"failed: {error}")
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

    def _publish(self, result: BuildResult, present: list[StoredVariant]) -> None:
        begin = time.perf_counter()
        # Until the manifest names them, only the lock of the store keeps the blobs from being collected.
        with self._store.writing():
            variants = [variant for variant in present if all(map(self._store.has_blob, _blobs(variant)))]
            for item in result.variants:
                gears = []
                for gear, artifact in zip(item.variant.gears, item.artifacts, strict=True):
                    blobs = {name: self._store.put_blob(data) for name, data in artifact.blobs.items()}
                    conditions = list(dict.fromkeys([*gear.conditions, *artifact.conditions]))
                    gears.append(replace(gear, header=artifact.header, blobs=blobs, conditions=conditions))
                variants.append(replace(item.variant, gears=gears))
            sizes = {digest: self._store.blob_size(digest) for variant in variants for digest in _blobs(variant)}
            payload: dict[str, Any] = {
                "method": self.name,
                "impossible": sorted({*self._impossible, *result.impossible}),
                **entry_to_plain(variants),
            }
            producer: dict[str, Any] = {
                "torch": str(torch.__version__),
                "variants": len(variants),
                "gears": [gear.text for variant in variants for gear in variant.gears],
                "compile_seconds": round(sum(gear.seconds for variant in variants for gear in variant.gears), 3),
            }
            self._store.publish(self.key, payload, sizes, producer)
        self._note("publish", seconds=time.perf_counter() - begin, bytes=sum(sizes.values()))
        logger.info("%s: stored %s", self.name, self.layout.manifest(self.key))
        self._store.keep_limits(self.key)

    def _load_built(self, scope: Scope) -> bool:
        """Load through the same path as a relaunch: what was stored is what runs."""
        self._read_again()
        if self._find_active(scope, Problems()) is not None:
            return True
        return self._load_stored(scope, counted=False)

    def _read_again(self) -> list[StoredVariant]:
        """Take in what is stored now beside what is loaded, and return what is stored."""
        found = self._store.lookup(self.key, explain=False)
        present = self.read_variants(found.manifest) if isinstance(found, Hit) else []
        known = {repr(active.variant.to_plain()) for active in self._active}
        self._stored = [active.variant for active in self._active]
        self._stored += [variant for variant in present if repr(variant.to_plain()) not in known]
        return present

    @property
    def backend_name(self) -> str:
        """The name of the backend."""
        return self._backend.name

    def loaded_variants(self) -> tuple[list[ActiveVariant], DiskStore]:
        """Return the variants that are loaded, and the store that has their blobs."""
        return list(self._active), self._store

    def _folder(self, name: str) -> Path:
        """Return a folder of this entry for files of the backend's own."""
        return self._store.layout.manifest(self.key).parent / name

    def _last_miss(self) -> str:
        return self._counters.miss_reasons[-1] if self._counters.miss_reasons else "its arguments are new"

    def _use_temporary_store(self) -> None:
        """Work without the cache folder: artifacts live as long as this process."""
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="gearcache-"))
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
            self._store = self._open_store(Layout(self._temporary))

    def _open_store(self, layout: Layout) -> DiskStore:
        settings = self._settings
        signer = Signer(settings.hmac_key_file) if settings.hmac_key_file is not None else None
        limits = Limits(settings.max_size, settings.max_age)
        return DiskStore(layout, lock_timeout=settings.lock_timeout, signer=signer, limits=limits)

    def scope(self, arguments: Mapping[str, Any]) -> Scope:
        """Return where the access paths of a call are looked up."""
        method = self._method
        closure = dict(zip(method.__code__.co_freevars, method.__closure__ or (), strict=True))
        instance = {parameter_names(self._function)[0]: self._function.__self__}
        return Scope({**instance, **arguments}, method.__globals__, closure)


def _blobs(variant: StoredVariant) -> list[str]:
    return [digest for gear in variant.gears for digest in gear.blobs.values()]


def _reason_of(miss: Miss) -> Reason:
    """Return what the store says about a miss; a difference to the nearest entry is a reason of its own kind."""
    text, difference = f"{miss.reason.value}: {miss.detail}", miss.difference
    if difference is None:
        return Reason(miss.reason.value, text)
    subject = f"{difference.component}.{difference.path}" if difference.path else difference.component
    return Reason("key", text, subject, str(difference.stored), str(difference.wanted))
