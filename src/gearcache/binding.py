"""One method of one instance under one global state: its entry, its loaded variants, its dispatch."""

from __future__ import annotations

import logging
import shutil
import tempfile
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gearcache.activate import ActiveVariant, EvidenceCheck, activate, fits_call
from gearcache.build import BuildRequest, BuiltVariant, build, self_names
from gearcache.cache import CacheKey, DiskStore, Hit, Layout, Manifest
from gearcache.call_sizes import call_sizes
from gearcache.collection import resumed_collection
from gearcache.errors import (
    CacheError,
    CompileError,
    CorruptEntry,
    GradientRequired,
    InputError,
    TooManyVariants,
    UnknownGear,
)
from gearcache.ge_cache.backend import Backend
from gearcache.ge_cache.gear_plan import gear_text
from gearcache.guards._native import state_checks
from gearcache.guards.access import Scope
from gearcache.guards.arguments import find_tensors
from gearcache.guards.dispatch import BoundGear, build_dispatch
from gearcache.guards.gears import GearSpec
from gearcache.guards.graph_call import GraphCall
from gearcache.guards.inputs import GRADIENT_WORDS, find_problem
from gearcache.guards.memory import find_overlap
from gearcache.guards.sources import changed_source
from gearcache.guards.variant import StoredVariant, entry_from_plain, entry_to_plain
from gearcache.options import Settings
from gearcache.problems import Problems, broken_condition
from gearcache.stats import Counters

logger = logging.getLogger("gearcache")
_MAX_STATES = 4


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
        *,
        dynamic: bool,
        decompositions: Mapping[Any, Any] | None,
        ge_cache: bool = False,
    ) -> None:
        self.name = name
        self.key = key
        self.layout = layout
        self._function = function
        self._method: types.FunctionType = function.__func__  # type: ignore[assignment]
        self._settings = settings
        self._spec = spec
        self._backend = backend
        self._counters = counters
        self._dynamic = dynamic
        self._decompositions = decompositions
        self._ge_cache = ge_cache
        self._store = DiskStore(layout, lock_timeout=settings.lock_timeout)
        self._stored: list[StoredVariant] | None = None
        self._active: list[ActiveVariant] = []
        self._gears: list[BoundGear] = []
        self._states: list[Callable[[], bool]] = []
        self._temporary: Path | None = None
        self.history: list[str] = []

    def gear_calls(self) -> dict[str, int]:
        """Return calls per gear."""
        counts: dict[str, int] = {}
        for active in self._active:
            for graph in active.graphs:
                counts[graph.gear.text] = counts.get(graph.gear.text, 0) + graph.calls
        return counts

    def gear_texts(self) -> list[str]:
        """Return the loaded gears."""
        return [graph.gear.text for active in self._active for graph in active.graphs]

    def dispatch(self, miss: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for the calls to come, valid for the global states met so far."""
        states = self._states if self._settings.validate == "inputs" else []
        instance = self._function.__self__
        return build_dispatch(self._method, instance, self._gears, self._scope({}), states, miss)

    def note_state(self) -> None:
        """Admit the present global state, in both grad modes: it has the key that this binding was made for."""
        if not any(state() for state in self._states):
            self._states = [*state_checks(), *self._states[: _MAX_STATES - 2]]

    def prepare(self, arguments: Mapping[str, Any]) -> Callable[..., Any] | None:
        """Make a call possible and return the frame that serves it; None when `on_miss` passes it on to eager.

        Raises `InputError` and its kin for a call that no graph may take, `CaptureError` and `CompileError` when the
        method or a gear cannot be compiled.
        """
        scope = self._scope(arguments)
        problems = Problems()
        frame = self._find_active(scope, problems)
        if frame is None and self._load_stored(scope):
            frame = self._find_active(scope, problems)
        if frame is not None:
            return frame
        self._refuse(arguments, problems)
        if problems.is_gear_miss and self._settings.on_miss == "eager":
            self._counters.eager_calls += 1
            return None
        self._refuse_gradients(arguments)
        self._build(arguments, scope, alone=problems.is_assumption)
        problems = Problems()
        frame = self._find_active(scope, problems)
        if frame is None:
            raise InputError(self.name, *problems.sentence())
        return frame

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

    # -- stored variants ---------------------------------------------------------------------------------

    def _load_stored(self, scope: Scope) -> bool:
        """Load the stored variants that fit this call; returns whether there is one."""
        if self._stored is None:
            self._stored = self._read_entry()
        known = {id(active.variant) for active in self._active}
        reasons = []
        loaded = False
        evidence = EvidenceCheck(scope)
        for variant in self._stored:
            if id(variant) in known:
                continue
            reason = fits_call(variant, scope) or evidence.stale_reason(variant)
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
                reasons.append(str(error))
                continue
            except CacheError as error:
                self._fault(error)
                reasons.append(str(error))
                continue
            self._active.append(active)
            self._counters.loads += len(active.graphs)
            loaded = True
        if loaded:
            self._counters.hits += 1
            self.history.append(f"hit: {self.layout.manifest(self.key)}")
        elif reasons:
            self._miss("; ".join(dict.fromkeys(reasons)))
        return loaded

    def _read_entry(self) -> list[StoredVariant]:
        try:
            found = self._store.lookup(self.key)
        except CacheError as error:
            self._fault(error)
            return []
        if not isinstance(found, Hit):
            self._miss(f"{found.reason.value}: {found.detail}")
            return []
        return self._variants_of(found.manifest)

    def _variants_of(self, manifest: Manifest) -> list[StoredVariant]:
        try:
            return entry_from_plain(manifest.payload)
        except (LookupError, TypeError, ValueError) as error:
            self._miss(f"the variants of {manifest.name} cannot be read: {type(error).__name__}: {error}")
            return []

    def _miss(self, reason: str) -> None:
        self._counters.misses += 1
        self._counters.miss_reasons.append(reason)
        self.history.append(f"miss: {reason}")
        logger.info("%s: miss: %s", self.name, reason)

    def _fault(self, error: CacheError) -> None:
        """The one failure policy: a fault of the cache never breaks the model, unless `strict`."""
        if self._settings.strict:
            raise error
        self._counters.faults += 1
        self.history.append(f"fault: {error}")
        logger.warning("%s: the cache cannot be used: %s", self.name, error)

    # -- misses ------------------------------------------------------------------------------------------

    def _refuse(self, arguments: Mapping[str, Any], problems: Problems) -> None:
        """Raise for a call that must not be compiled: a wrong tensor, or a shape outside the declared gears."""
        sizes = call_sizes(self._spec, arguments)
        is_complete = bool(self._spec.axes) and len(sizes) == len(self._spec.axes)
        gear = gear_text(self._spec, sizes) if is_complete else None
        problem = problems.decisive(gear)
        if problem is not None and problem.kind == "grad":
            raise GradientRequired(self.name, problem.argument, problem.found, problem.allowed)
        if problem is not None and problem.kind not in ("shape", "alias", "rank"):
            raise InputError(self.name, problem.argument, problem.found, problem.allowed)
        if problem is not None and problem.kind == "rank" and self._settings.on_miss == "raise":
            raise InputError(self.name, problem.argument, problem.found, problem.allowed)
        if not self._spec.axes:
            if problem is not None and self._settings.on_miss == "raise":
                raise InputError(self.name, problem.argument, problem.found, problem.allowed)
            return
        if is_complete and sizes not in self._spec.gears:
            if self._settings.on_miss == "raise":
                listed = "; ".join(gear_text(self._spec, gear) for gear in self._spec.gears)
                argument = self._spec.axes[0].path
                raise UnknownGear(self.name, argument, f"outside all gears: {gear_text(self._spec, sizes)}", listed)
            problems.is_gear_miss = True
            return
        is_loaded = problem is not None and gear in self.gear_texts()
        problems.is_assumption = is_loaded and problem is not None and problem.is_assumption
        if problem is not None and is_loaded and self._settings.on_miss == "raise" and not problem.is_assumption:
            raise InputError(self.name, problem.argument, problem.found, problem.allowed)

    def _refuse_gradients(self, arguments: Mapping[str, Any]) -> None:
        if torch.is_grad_enabled():
            for path, tensor in find_tensors(arguments).items():
                if tensor.requires_grad:
                    raise GradientRequired(self.name, path, *GRADIENT_WORDS)

    def _build(self, arguments: Mapping[str, Any], scope: Scope, *, alone: bool) -> None:
        """Compile under the key's lock, unless another process did it meanwhile; publish; load what was stored.

        `alone` compiles just the call's own gear.
        """
        built: list[BuiltVariant] | None = None
        try:
            with self._store.exclusive(self.key):
                present = self._look_again(scope)
                if present is None:
                    return
                present = self._make_room(present)
                built = self._compile(arguments, alone)
                self._publish(built, present)
        except CacheError as error:
            self._fault(error)
            if built is None:
                built = self._compile(arguments, alone)
            self._use_temporary_store()
            self._publish(built, [])
        if not self._load_built(scope):
            reason = self.history[-1] if self.history else "its own evidence does not hold"
            raise CompileError(self.name, "of this call", f"what was compiled cannot be used: {reason}")

    def _make_room(self, present: list[StoredVariant]) -> list[StoredVariant]:
        """Return the variants to keep beside a new one; those of edited source go first when there are too many."""
        excess = len(present) + 1 - self._settings.max_variants
        if excess <= 0:
            return present
        edited = [variant for variant in present if changed_source(variant.sources) is not None][:excess]
        if len(edited) < excess:
            raise TooManyVariants(self.name, self._settings.max_variants, self._last_miss())
        return [variant for variant in present if variant not in edited]

    def _look_again(self, scope: Scope) -> list[StoredVariant] | None:
        """Return the variants to keep; None when one that fits this call has appeared and is loaded now."""
        found = self._store.lookup(self.key, explain=False)
        present = self._variants_of(found.manifest) if isinstance(found, Hit) else []
        known = {repr(variant.to_plain()) for variant in self._stored or []}
        fresh = [variant for variant in present if repr(variant.to_plain()) not in known]
        if fresh:
            self._stored = [*(self._stored or []), *fresh]
            if self._load_stored(scope) and self._find_active(scope, Problems()) is not None:
                return None
        return present

    def _compile(self, arguments: Mapping[str, Any], alone: bool) -> list[BuiltVariant]:
        spec = self._spec
        sizes = call_sizes(spec, arguments)
        if spec.axes and len(sizes) == len(spec.axes) and (alone or sizes not in spec.gears):
            axes = tuple(replace(axis, sizes=(size,)) for axis, size in zip(spec.axes, sizes, strict=True))
            spec = GearSpec(axes)
        request = BuildRequest(
            name=self.name,
            function=self._function,
            arguments={name: value for name, value in arguments.items() if name != self_names(self._function)[0]},
            spec=spec,
            dynamic=self._dynamic,
            backend=self._backend,
            options=self._settings.options,
            decompositions=self._decompositions,
            jobs=self._settings.jobs,
        )
        with resumed_collection():
            built, errors = build(request, self._counters)
        for error in errors:
            logger.error("%s", error)
            self.history.append(f"failed: {error}")
        if not built:
            raise errors[0] if errors else CompileError(self.name, "of this call", "no gear was compiled")
        wanted = gear_text(spec, sizes) if spec.axes and len(sizes) == len(spec.axes) else None
        for error in errors:
            if error.gear == wanted:
                self._publish(built, [])
                raise error
        return built

    def _publish(self, built: list[BuiltVariant], present: list[StoredVariant]) -> None:
        variants = list(present)
        for item in built:
            gears = []
            for gear, artifact in zip(item.variant.gears, item.artifacts, strict=True):
                blobs = {name: self._store.put_blob(data) for name, data in artifact.blobs.items()}
                conditions = list(dict.fromkeys([*gear.conditions, *artifact.conditions]))
                gears.append(replace(gear, header=artifact.header, blobs=blobs, conditions=conditions))
            variants.append(replace(item.variant, gears=gears))
        blob_sizes = {
            digest: self._store.layout.blob(digest).stat().st_size
            for variant in variants
            for gear in variant.gears
            for digest in gear.blobs.values()
        }
        payload: dict[str, Any] = {"method": self.name, **entry_to_plain(variants)}
        self._store.publish(self.key, payload, blob_sizes, {"torch": str(torch.__version__)})
        logger.info("%s: stored %s", self.name, self.layout.manifest(self.key))

    def _load_built(self, scope: Scope) -> bool:
        """Load through the same path as a relaunch: what was stored is what runs."""
        found = self._store.lookup(self.key, explain=False)
        present = self._variants_of(found.manifest) if isinstance(found, Hit) else []
        known = {repr(active.variant.to_plain()) for active in self._active}
        self._stored = [active.variant for active in self._active]
        self._stored += [variant for variant in present if repr(variant.to_plain()) not in known]
        if self._find_active(scope, Problems()) is not None:
            return True
        hits, history = self._counters.hits, list(self.history)
        loaded = self._load_stored(scope)
        if loaded:
            self._counters.hits, self.history = hits, history
        return loaded

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
            self._store = DiskStore(Layout(self._temporary), lock_timeout=self._settings.lock_timeout)

    def _scope(self, arguments: Mapping[str, Any]) -> Scope:
        method = self._method
        closure = dict(zip(method.__code__.co_freevars, method.__closure__ or (), strict=True))
        instance = {self_names(self._function)[0]: self._function.__self__}
        return Scope({**instance, **arguments}, method.__globals__, closure)
