"""The bindings of one cached method: one for each global state, and each place of an argument with gears."""

from __future__ import annotations

import types
from collections.abc import Iterator

from gearcache.cache.keys.fingerprint import state_component
from gearcache.serving.call.build_right import BuildRight
from gearcache.serving.call.call import Call, at_their_places
from gearcache.serving.call.input_signature import InputSignature
from gearcache.serving.call.parameters import Parameters
from gearcache.serving.call.resolved import resolve
from gearcache.serving.call.session import Session
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.entry import Entry
from gearcache.telemetry.counters import Counters
from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.outcomes import Outcomes
from gearcache.telemetry.shapes_met import Met
from gearcache.telemetry.spans import span


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
        geared = at_their_places(self._parameters.gears, self._method[1], call.arguments)
        places = self._signature.places(call.arguments)
        identity = repr((sorted(state.items()), list(geared or ()), places))
        if identity not in self._bindings:
            with span("key", self._method[0]):
                parameters, signature = self._parameters, self._signature
                resolved = resolve(*self._method, parameters, signature, call, state, overrides, self._right)
            self._bindings[identity] = Binding(resolved, *self._records)
        return self._bindings[identity]

    def are_outdated(self, call: Call) -> bool:
        """Whether the basis of any of the bindings has changed."""
        return any(binding.is_outdated(call) for binding in self)

    def declare(self, parameters: Parameters, signature: InputSignature) -> None:
        """Set other specs of the arguments; existing bindings are dropped."""
        self._parameters, self._signature = parameters, signature
        self.drop()

    def drop(self) -> None:
        """Drop all bindings; their entries stay in use until `release`."""
        self._dropped_entries += [binding.entry for binding in self]
        self._earlier_shapes = self.shapes_met()
        self._bindings = {}

    def release(self) -> None:
        """Release the entries of dropped bindings."""
        self._dropped_entries.clear()

    def shapes_met(self) -> Met:
        """Return the dims of shapes, the declared gears over them, and calls by shape since the beginning."""
        shapes_by_binding = [
            (tuple(binding_shapes.dims()), tuple(binding_shapes.gears()), binding_shapes.counts())
            for binding_shapes in (binding.shapes for binding in self)
        ]
        dims, gears = next(
            ((dims, gears) for dims, gears, _ in (*shapes_by_binding, self._earlier_shapes) if dims), ((), ())
        )
        counts: dict[tuple[int, ...], int] = {}
        for own_dims, _, shapes in (*shapes_by_binding, self._earlier_shapes):
            for shape, calls in shapes.items() if own_dims == dims else ():
                counts[shape] = counts.get(shape, 0) + calls
        return dims, gears, counts
