"""A cached method as it is before its first call: what all its bindings share."""

from __future__ import annotations

import types

from msgspec import Struct
from msgspec.structs import replace

from gearcache.guards.gears.input_specs import InputSpecs
from gearcache.serving.call.bound_method import BoundMethod
from gearcache.serving.call.build_right import BuildRight
from gearcache.serving.call.input_signature import InputSignature
from gearcache.serving.call.parameters import Parameters
from gearcache.telemetry.counters import Counters
from gearcache.telemetry.gear_use import GearUse


class DeclaredMethod(Struct, frozen=True, eq=False):
    """A method, what its user has declared about it, whether it may compile, and the counters of its calls."""

    #: The name of the method in messages.
    name: str
    bound: BoundMethod
    #: The arguments of `cache_compile`, with the input specs that were set since.
    parameters: Parameters
    inputs: InputSignature
    right: BuildRight
    counters: Counters
    use: GearUse

    @staticmethod
    def of(written: types.MethodType, parameters: Parameters) -> DeclaredMethod:
        """Declare a method; `CaptureError` or `GearSpecError` if decorators or specs make it impossible to cache."""
        bound = BoundMethod.of(written)
        name = parameters.name_of(bound.method)
        inputs = InputSignature(name, bound, parameters)
        return DeclaredMethod(
            name, bound, parameters, inputs, BuildRight(bound.instance), Counters(method=name), GearUse(name)
        )

    def with_inputs(self, specs: InputSpecs) -> DeclaredMethod:
        """Return it with other specs of the arguments; `GearSpecError` for those that do not fit."""
        parameters = replace(self.parameters, input_signature=specs)
        return replace(self, parameters=parameters, inputs=InputSignature(self.name, self.bound, parameters))
