"""Dynamo hooks that report how a trace uses the identity of objects."""

from __future__ import annotations

import contextlib
import enum
import operator
import types
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.capture.exchanged import exchanged, here

#: Methods and attributes of C classes as objects, such as `torch.Tensor.cos`: Dynamo calls them without a guard.
DESCRIPTORS = (
    *(
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
        types.ClassMethodDescriptorType,
    ),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.BuiltinMethodType),
)


@contextlib.contextmanager
def watched_identities(identities: Any) -> Iterator[None]:
    """Report to `Identities` which objects are compared, hashed, passed to `id`, or found at two paths."""
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.variables import object_protocol as protocol_module
    from torch._dynamo.variables.builder import VariableBuilder
    from torch._dynamo.variables.constant import FakeIdVariable
    from torch._dynamo.variables.lazy import LazyVariableTracker

    protocol: Any = protocol_module
    builder: Any = VariableBuilder
    compare, hash_of, wrap = protocol.vt_identity_compare, protocol.generic_hash_impl, builder._call_impl

    def vt_identity_compare(left: Any, right: Any) -> Any:
        identities.compared(left.source, right.source)
        return compare(left, right)

    def generic_hash_impl(tx: Any, variable: Any) -> Any:
        if isinstance(variable, FakeIdVariable):
            identities.number_looked_up()
        else:
            identities.hashed(variable.source)
        return hash_of(tx, variable)

    def call_impl(self: Any, value: Any) -> Any:
        effects = self.tx.output.side_effects
        if value in effects:
            identities.met_again(self.source, effects[value].source)
            if isinstance(value, enum.Enum):  # Dynamo guards a member at the first of its places only
                self.install_guards(GuardBuilder.ID_MATCH)
        elif isinstance(value, DESCRIPTORS):
            identities.met_descriptor(self.source)
        return wrap(self, value)

    def builtin(function: Any, tx: Any, arguments: list[Any]) -> Any:
        if function is not id:
            identities.compared(arguments[0].source, arguments[1].source)
        elif len(arguments) == 1 and not isinstance(arguments[0], LazyVariableTracker):
            number = arguments[0].get_id(tx)
            if number is not None and arguments[0].source is not None:
                identities.hashed(arguments[0].source)
                return FakeIdVariable(number)  # the trace may compare and look it up, but not keep it
        return None

    replacements = [
        (protocol, "vt_identity_compare", here(vt_identity_compare, compare)),
        (protocol, "generic_hash_impl", here(generic_hash_impl, hash_of)),
        (builder, "_call_impl", here(call_impl, wrap)),
    ]
    with exchanged(replacements), watched_builtins({operator.is_, operator.is_not, id}, builtin):
        yield


@contextlib.contextmanager
def watched_builtins(functions: set[Any], report: Any) -> Iterator[None]:
    """Report calls of some builtins with their variables; a returned value, unless None, becomes the result.

    Dynamo keeps a handler per builtin and kinds of arguments for the life of the process: handlers made here are kept
    only for this trace.
    """
    from torch._dynamo.variables.builtin import BuiltinVariable

    variable: Any = BuiltinVariable
    make = variable._make_handler

    def make_handler(function: Any, kinds: list[type], has_keywords: bool) -> Any:
        handler = make(function, kinds, has_keywords)
        if function not in functions:
            return handler

        def watched(tx: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
            return report(function, tx, arguments) or handler(tx, arguments, keywords)

        return watched

    replacements = [
        (variable, "_make_handler", staticmethod(here(make_handler, make))),
        (variable, "call_function_handler_cache", {}),
    ]
    with exchanged(replacements):
        yield


def tracked_objects() -> Iterator[tuple[Any, Any, bool]]:
    """Yield (source, object, whether the frame writes it) for all objects that the current capture tracks."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    effects: Any = InstructionTranslator.current_tx().output.side_effects
    values = {id(value): value for value in effects.keepalive}
    for key, variable in effects.id_to_variable.items():
        if key in values and getattr(variable, "source", None) is not None:
            is_written = variable in effects.store_attr_mutations or effects.is_modified(variable)
            yield variable.source, values[key], is_written
