"""The bindings of one cached method: one for each global state, and each place of an argument with gears.

A program may switch its module to and fro, such as between adapters. The bindings of a module that has changed are set
aside with their graphs. Once their watches hold again, all that their graphs rest on is as it was, and they serve again
without a lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from gearcache.guards.access import Scope
from gearcache.serving.call.call import Call
from gearcache.serving.call.resolved import DeclaredMethod, resolve
from gearcache.serving.call.session import Session
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.entry import Entry
from gearcache.telemetry.gear_use import ShapeCounts
from gearcache.telemetry.spans import span
from gearcache.torch_state import state_component

if TYPE_CHECKING:
    from gearcache.serving.miss.lessons import Lessons

#: How many states of the module are kept.
_MOST_SET_ASIDE = 32


class ModuleState(Struct, eq=False):
    """The bindings of one state of the module, by what tells them apart."""

    bindings: dict[str, Binding] = field(default_factory=dict)
    #: The binding of the last call that was served, and the dispatch that was made for it; set together.
    last: Binding | None = None
    dispatch: Callable[..., Any] | None = None

    def all_bindings(self) -> list[Binding]:
        """Return the bindings; a call of this state may add one meanwhile."""
        return list(self.bindings.values())

    def holds(self) -> bool:
        """Whether the module is in this state now."""
        return all(binding.holds() for binding in self.all_bindings())

    def has_weights(self, scope: Scope) -> bool:
        """Whether all weights that its graphs are bound to are in their places, so that it keeps no others alive."""
        return all(binding.has_weights(scope) for binding in self.all_bindings())

    def has_graphs(self) -> bool:
        """Whether a graph was loaded for it."""
        return any(binding.loaded.gears for binding in self.all_bindings())


class Bindings:
    """The states of one cached method. Not thread-safe, except for reading: its owner locks changes."""

    def __init__(self) -> None:
        #: Exchanged as one, so that other threads can read it without a lock.
        self.present = ModuleState()
        #: Other states of the module, the latest first.
        self._set_aside: list[ModuleState] = []
        self._lessons: dict[str, Lessons] = {}
        #: Entries of dropped bindings: still in use, because the next call loads them again.
        self._dropped_entries: list[Entry] = []
        self._earlier_shapes = ShapeCounts()

    def __iter__(self) -> Iterator[Binding]:
        """Iterate over the bindings of the present state."""
        return iter(self.present.all_bindings())

    def for_call(self, declared: DeclaredMethod, call: Call, overrides: Session | None) -> Binding:
        """Return the binding of a call; makes key and store for a new one.

        `InputError` for a call that differs from its declaration.
        """
        declared.inputs.check(call)
        state = state_component()
        named = [call.at_their_places(paths) for paths in declared.parameters.named_paths()]
        places = declared.inputs.places(call)
        identity = repr((sorted(state.items()), [list(paths or ()) for paths in named], places))
        bindings = self.present.bindings  # another thread may exchange them
        if identity not in bindings:
            with span("key", declared.name):
                resolved = resolve(declared, call, state, overrides)
            bindings[identity] = Binding(resolved, self._lessons, identity)
        return bindings[identity]

    def are_outdated(self, call: Call) -> bool:
        """Whether the basis of any of the bindings has changed."""
        return any(binding.is_outdated(call) for binding in self)

    def leave(self, call: Call) -> None:
        """Begin anew for a changed module. The present state is set aside unless weights were replaced."""
        kept = [state for state in self._with_present() if state.has_weights(call.scope)]
        self._keep(ModuleState(), kept[:_MOST_SET_ASIDE])

    def returned(self) -> ModuleState | None:
        """Return an earlier state that the module is in again, if it has left the present one.

        Needs no lock.
        """
        if not self._set_aside:
            return None
        if self.present.has_graphs() and self.present.holds():
            return None
        return next((state for state in list(self._set_aside) if state.holds()), None)

    def exchange(self, returned: ModuleState) -> bool:
        """Set the present state aside for an earlier one; returns False if another thread has done something else."""
        if returned not in self._set_aside:
            return False
        self._keep(returned, [state for state in self._with_present() if state is not returned])
        return True

    def drop(self) -> None:
        """Drop all bindings; their entries stay in use until `release`."""
        self._lessons = {identity: lessons.after_refresh() for identity, lessons in self._lessons.items()}
        self._keep(ModuleState(), [])

    def _with_present(self) -> list[ModuleState]:
        """Return the states that are set aside after the present one, if there are graphs of it to keep."""
        is_kept = self.present.last is not None and self.present.has_graphs()
        return [self.present, *self._set_aside] if is_kept else list(self._set_aside)

    def _keep(self, present: ModuleState, set_aside: list[ModuleState]) -> None:
        """Go on with one state, and others set aside; entries of bindings that are left stay in use until `release`."""
        before = self._all()
        self.present, self._set_aside = present, set_aside
        kept = set(map(id, self._all()))
        dropped = [binding for binding in before if id(binding) not in kept]
        self._dropped_entries += [binding.entry for binding in dropped]
        self._earlier_shapes = self._shapes_of(dropped)

    def _all(self) -> list[Binding]:
        return [binding for state in (self.present, *self._set_aside) for binding in state.all_bindings()]

    def release(self) -> None:
        """Release the entries of dropped bindings."""
        self._dropped_entries.clear()

    def shapes_met(self) -> ShapeCounts:
        """Return the calls by shape since the beginning."""
        return self._shapes_of(self._all())

    def _shapes_of(self, bindings: list[Binding]) -> ShapeCounts:
        return ShapeCounts.together([*(binding.shapes.counts() for binding in bindings), self._earlier_shapes])
