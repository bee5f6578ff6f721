"""Serves the calls of one method of one instance under one global state from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gearcache.errors import GearcacheError
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.function import build_dispatch
from gearcache.guards.dispatch.native import state_checks
from gearcache.serving.activate import ActiveVariant
from gearcache.serving.binding_watch import BindingWatch
from gearcache.serving.entry import Entry
from gearcache.serving.loaded import LoadedVariants
from gearcache.serving.problems import Problems
from gearcache.serving.resolved import ResolvedMethod
from gearcache.serving.stored import StoredVariants
from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.history import History
from gearcache.telemetry.shapes_met import ShapesMet
from gearcache.telemetry.stats import Counters

if TYPE_CHECKING:
    from gearcache.cache.protocol import Store
    from gearcache.serving.unserved import UnservedCalls

_MAX_STATES = 4


class Binding:
    """A method's entry, its loaded variants and its dispatch. Not thread safe: its owner locks `prepare`."""

    def __init__(self, method: ResolvedMethod, counters: Counters, use: GearUse) -> None:
        settings = method.settings
        self.name = method.name
        self.spec = method.spec
        self.history = History(method.name, method.key.name, counters, strict=settings.strict)
        keeps_files = method.backend.keeps_files
        self.entry = Entry(method.key, method.layout, settings, self.history, keeps_files=keeps_files)
        self.loaded = LoadedVariants(method.name, validate=settings.validate == "inputs")
        self._method = method
        self._counters = counters
        self._use = use
        self._stored = StoredVariants(method, self.entry, self.loaded, self.history, use)
        self._states: list[Callable[[], bool]] = []
        self._watch = BindingWatch(self.name)
        self._shapes = ShapesMet(method.spec)
        self._unserved: UnservedCalls | None = None

    @property
    def backend_name(self) -> str:
        """The name of the backend."""
        return self._method.backend.name

    def loaded_variants(self) -> tuple[list[ActiveVariant], Store]:
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
        states = self._states if self._method.settings.validate == "inputs" else []
        instance = self._method.function.__self__
        method, scope = self._method.plain(), self.scope({})
        try:
            unchanged = self._watch.over(self.loaded.variants) if self.loaded.gears else None
            return build_dispatch(method, instance, self.loaded.gears, scope, states, unchanged, miss)
        except Exception as error:
            self._stored.distrust(error)
            return build_dispatch(method, instance, [], scope, states, None, miss)

    def is_outdated(self, arguments: Mapping[str, Any]) -> bool:
        """Whether what the loaded graphs were built on has changed, so that all is to be looked up again.

        Where something was exchanged but everything that they depend on is as it was, they stay.
        """
        return self._watch.is_outdated(self.loaded.variants, self.scope(arguments))

    def note_state(self) -> None:
        """Admit the present global state, in both grad modes: it has the key that this binding was made for."""
        if not any(state() for state in self._states):
            self._states = [*state_checks(), *self._states[: _MAX_STATES - 2]]

    def scope(self, arguments: Mapping[str, Any]) -> Scope:
        """Return where the access paths of a call are looked up."""
        return self._method.scope(arguments)

    def prepare(self, arguments: Mapping[str, Any], stance: str = "default") -> Callable[..., Any] | None:
        """Make a call possible and return the frame that serves it; None when it is to run eagerly.

        None: `on_miss` or the current stance asks for an eager run.

        Raises `InputError` and its kin for a call that no graph may take, `CaptureError` and `CompileError` when the
        method or a gear cannot be compiled.
        """
        try:
            scope = self.scope(arguments)
            problems = Problems()
            misses = self.history.misses
            frame = self._find(scope, problems)
            if frame is not None:
                return frame
            explained = self.history.misses > misses
            return self._unserved_calls().frame(arguments, scope, problems, stance, explained=explained)
        finally:
            self.history.tell()

    def _find(self, scope: Scope, problems: Problems) -> Callable[..., Any] | None:
        """Return the frame that serves a call, of what is loaded and then of what is stored."""
        try:
            frame = self.loaded.find(scope, problems)
            if frame is None and self._stored.load(scope):
                frame = self.loaded.find(scope, problems)
        except GearcacheError:
            raise
        except Exception as error:
            self._stored.distrust(error)
            return None
        return frame

    def complete(self, arguments: Mapping[str, Any]) -> None:
        """Compile the gears of the spec that are missing for a call that `prepare` has served.

        Gears are missing after an interrupted build or a failed gear. Raises as `prepare` does.
        """
        self._unserved_calls().builds.complete(arguments, self.scope(arguments))

    def _unserved_calls(self) -> UnservedCalls:
        # A relaunch does without it, and without importing it.
        from gearcache.serving.unserved import UnservedCalls

        if self._unserved is None:
            self._unserved = UnservedCalls(
                self._method,
                self.entry,
                self._stored,
                self.loaded,
                self.history,
                self._counters,
                self._use,
                self._shapes,
            )
        return self._unserved
