"""The bindings of one cached method: one for each global state, and each place of an argument with gears.

A program may switch its module to and fro, such as between adapters. The bindings of a module that has changed are set
aside with their graphs. Once their watches hold again, all that their graphs rest on is as it was, and they serve again
without a lookup.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gearcache.guards.access import Scope
from gearcache.serving.call.build_right import BuildRight
from gearcache.serving.call.call import Call, at_their_places
from gearcache.serving.call.input_signature import InputSignature
from gearcache.serving.call.parameters import Parameters
from gearcache.serving.call.resolved import resolve
from gearcache.serving.call.session import Session
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.entry import Entry
from gearcache.telemetry.counters import Counters, Outcomes
from gearcache.telemetry.gear_use import GearUse, Met, add_calls
from gearcache.telemetry.spans import span
from gearcache.torch_state import state_component

if TYPE_CHECKING:
    from gearcache.serving.miss.unserved import Lessons

#: How many states of the module are kept.
_MOST_SET_ASIDE = 32


class SetAside(Struct, frozen=True, eq=False):
    """The bindings of one state of the module, the one of the last call, and the dispatch made from it."""

    bindings: dict[str, Binding]
    last: Binding
    dispatch: Callable[..., Any]

    def holds(self) -> bool:
        """Whether the module is in this state now."""
        return all(binding.holds() for binding in list(self.bindings.values()))  # a call of this state may add one

    def has_weights(self, scope: Scope) -> bool:
        """Whether all weights that its graphs are bound to are in their places, so that it keeps no others alive."""
        return all(binding.has_weights(scope) for binding in list(self.bindings.values()))


class Bindings:
    """Creates bindings on demand. Not thread-safe, except for reading: its owner locks changes.

    `mode` is the autograd mode that decorators set for the method.
    """

    def __init__(
        self,
        name: str,
        function: types.MethodType,
        mode: str,
        parameters: Parameters,
        signature: InputSignature,
        counters: Counters,
        outcomes: Outcomes,
        use: GearUse,
        right: BuildRight,
    ) -> None:
        self._method = (name, function, mode)
        self._parameters, self._signature = parameters, signature
        self._records = (counters, outcomes, use)
        self._right = right
        self._bindings: dict[str, Binding] = {}
        self._lessons: dict[str, Lessons] = {}
        #: Other states of the module, the latest first.
        self._set_aside: list[SetAside] = []
        #: Entries of dropped bindings: still in use, because the next call loads them again.
        self._dropped_entries: list[Entry] = []
        self._earlier_shapes: Met = (), (), {}

    def __iter__(self) -> Iterator[Binding]:
        """Iterate over the bindings."""
        return iter(list(self._bindings.values()))

    def for_call(self, call: Call, overrides: Session | None) -> Binding:
        """Return the binding of a call; makes key and store for a new one.

        `InputError` for a call that differs from its declaration.
        """
        self._signature.check(call.arguments)
        state = state_component()
        named = [at_their_places(paths, self._method[1], call.arguments) for paths in self._parameters.named_paths()]
        places = self._signature.places(call.arguments)
        identity = repr((sorted(state.items()), [list(paths or ()) for paths in named], places))
        bindings = self._bindings  # another thread may exchange them
        if identity not in bindings:
            with span("key", self._method[0]):
                parameters, signature = self._parameters, self._signature
                resolved = resolve(*self._method, parameters, signature, call, state, overrides, self._right)
            bindings[identity] = Binding(resolved, *self._records, self._lessons, identity)
        return bindings[identity]

    def are_outdated(self, call: Call) -> bool:
        """Whether the basis of any of the bindings has changed."""
        return any(binding.is_outdated(call) for binding in self)

    def declare(self, parameters: Parameters, signature: InputSignature) -> None:
        """Set other specs of the arguments; existing bindings are dropped."""
        self._parameters, self._signature = parameters, signature
        self.drop()

    def leave(self, last: Binding | None, dispatch: Callable[..., Any], call: Call) -> None:
        """Begin anew for a changed module. The present bindings are set aside unless weights were replaced."""
        kept = [each for each in self._with_present(last, dispatch) if each.has_weights(call.scope)]
        self._keep({}, kept[:_MOST_SET_ASIDE])

    def returned(self) -> SetAside | None:
        """Return the bindings of an earlier state that the module is in again, if it has left that of the present ones.

        Needs no lock.
        """
        if not self._set_aside:
            return None
        if self._have_graphs() and all(binding.holds() for binding in self):
            return None
        return next((each for each in list(self._set_aside) if each.holds()), None)

    def exchange(self, last: Binding | None, dispatch: Callable[..., Any], returned: SetAside) -> bool:
        """Set the present bindings aside for earlier ones; returns False if another thread has done something else."""
        if returned not in self._set_aside:
            return False
        kept = [each for each in self._with_present(last, dispatch) if each is not returned]
        self._keep(returned.bindings, kept)
        return True

    def drop(self) -> None:
        """Drop all bindings; their entries stay in use until `release`."""
        self._lessons = {identity: lessons.after_refresh() for identity, lessons in self._lessons.items()}
        self._keep({}, [])

    def _have_graphs(self) -> bool:
        return any(binding.loaded.gears for binding in self)

    def _with_present(self, last: Binding | None, dispatch: Callable[..., Any]) -> list[SetAside]:
        """Return the states that are set aside after the present one, if there are graphs of it to keep."""
        if last is None or not self._have_graphs():
            return list(self._set_aside)
        return [SetAside(self._bindings, last, dispatch), *self._set_aside]

    def _keep(self, bindings: dict[str, Binding], set_aside: list[SetAside]) -> None:
        """Go on with some bindings, and others set aside; those that are left remain in use until `release`."""
        before = self._all()
        self._bindings, self._set_aside = bindings, set_aside
        kept = set(map(id, self._all()))
        dropped = [binding for binding in before if id(binding) not in kept]
        self._dropped_entries += [binding.entry for binding in dropped]
        self._earlier_shapes = _sum_of_shapes([*(_shapes_of(binding) for binding in dropped), self._earlier_shapes])

    def _all(self) -> list[Binding]:
        return [*self, *(binding for each in self._set_aside for binding in list(each.bindings.values()))]

    def release(self) -> None:
        """Release the entries of dropped bindings."""
        self._dropped_entries.clear()

    def shapes_met(self) -> Met:
        """Return the dims of shapes, the declared gears over them, and calls by shape since the beginning."""
        return _sum_of_shapes([*(_shapes_of(binding) for binding in self._all()), self._earlier_shapes])


def _shapes_of(binding: Binding) -> Met:
    return tuple(binding.shapes.dims()), tuple(binding.shapes.gears()), binding.shapes.counts()


def _sum_of_shapes(parts: list[Met]) -> Met:
    dims, gears = next(((dims, gears) for dims, gears, _ in parts if dims), ((), ()))
    counts: dict[tuple[int, ...], int] = {}
    for own_dims, _, shapes in parts:
        for shape, calls in shapes.items() if own_dims == dims else ():
            add_calls(counts, shape, calls)
    return dims, gears, counts
