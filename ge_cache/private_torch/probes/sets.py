"""Report when a trace depends on the order of sets."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field
from torch._dynamo.symbolic_convert import InstructionTranslator, InstructionTranslatorBase
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable, DictBuiltinVariable
from torch._dynamo.variables.functions import PolyfilledFunctionVariable
from torch._dynamo.variables.lists import BaseListVariable, DequeVariable, ListVariable
from torch._dynamo.variables.sets import DictKeySetVariable, FrozensetVariable, OrderedSetVariable, SetVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.capture.orders import CAUSE, arranged
from gearcache.ge_cache.private_torch import under_way as private_under_way
from gearcache.ge_cache.private_torch.probe import Place, Probes, named_methods, overriding
from gearcache.ge_cache.private_torch.probes.keys import Tests
from gearcache.ge_cache.private_torch.renamed import name_here

#: Functions of Dynamo's own that iterate over a set for a result that does not depend on the order.
_SET_POLYFILLS = {
    "set_difference",
    "set_difference_update",
    "set_intersection",
    "set_intersection_update",
    "set_isdisjoint",
    "set_symmetric_difference",
    "set_symmetric_difference_update",
    "set_union",
    "set_update",
}
_KINDS = (SetVariable, FrozensetVariable)
#: Functions whose result depends on the order of sets that they are given, also inside of something.
_ORDERED = (str, repr, ascii, format, str.format, sum, math.prod, operator.mod, max, min, sorted)
#: Types of which no two different items are equal, and one of two is less; but for NaN.
_SORTED = {bool, int, float, str, bytes}
probes = Probes()


class _Sets(Struct):
    """The sets that a trace has used so far."""

    #: Sets that a function goes through now whose result does not depend on their order.
    unordered: list[Any] = field(default_factory=list)
    #: The functions that Dynamo may give constants to, as far as they are called now, each inside the one before.
    functions: list[Any] = field(default_factory=list)
    #: Sets that were iterated over, with their items in that order: unchanged sets keep it.
    orders: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)


@probes.at_each(lambda: named_methods(SetVariable, "pop"))
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Note `pop`, which takes the first item."""
    if name == "pop":
        _note_use(trace, self, tx, at_once=True)
    return original(self, tx, name, args, kwargs)


@probes.at(InstructionTranslatorBase, "jump")
def jumped(trace: Any, original: Any, self: Any, inst: Any) -> Any:
    """Count jumps: in another order of a set, each item has to be treated alike."""
    trace.jumps[self.f_code, getattr(inst, "offset", None)] += 1
    return original(self, inst)


def _extending() -> Iterator[Place]:
    for kind in (ListVariable, DequeVariable):
        yield from named_methods(kind, "extend")
    if hasattr(BaseListVariable, "list_extend"):  # since torch 2.15: `items += some` calls it
        yield BaseListVariable, "list_extend"


@probes.at_each(_extending)
def extended(trace: Any, original: Any, self: Any, tx: Any, *arguments: Any) -> Any:
    """Note a set by which a list is extended: it takes the items at once."""
    *name, args, _ = arguments
    if name in ([], ["extend"]) and len(args) == 1:
        _note_use(trace, args[0].realize(), tx)
    return original(self, tx, *arguments)


@probes.at(BuiltinVariable, "call_function")
@probes.at(PolyfilledFunctionVariable, "call_function")
@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note the function that is called."""
    functions = trace.state(_Sets).functions
    functions.append(self.value if isinstance(self, TorchInGraphFunctionVariable) else self.fn)
    try:
        return original(self, tx, args, kwargs)
    finally:
        functions.pop()


# Since torch 2.15 the second is no subclass of the first.
@probes.at_each(lambda: overriding(FrozensetVariable, "as_python_constant"))
@probes.at_each(lambda: overriding(SetVariable, "as_python_constant"))
def given_to_python(trace: Any, original: Any, self: Any) -> Any:
    """Note a set that a function gets whole, alone or inside of something."""
    state = trace.state(_Sets)
    if state.functions and any(state.functions[-1] is each for each in _ORDERED) and trace.state(Tests).depth == 0:
        _note_use(trace, self, InstructionTranslator.current_tx(), at_once=True)
    return original(self)


@probes.at(DictBuiltinVariable, "call_custom_dict_fromkeys")
def made_from_keys(trace: Any, original: Any, tx: Any, user_cls: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Note the set of `dict.fromkeys`, which iterates in its own way since torch 2.14."""
    for operand in args[:1]:
        _note_use(trace, operand.realize(), tx)
    return original(tx, user_cls, *args, **kwargs)


def _defined(*names: str) -> Iterator[Place]:
    # Since torch 2.15 both have a base, with these methods: dict views share it, and `_note_use` passes them over.
    kinds = (base for kind in _KINDS for base in kind.__mro__)
    for kind in dict.fromkeys(base for base in kinds if issubclass(base, VariableTracker)):
        for name in names:
            if name_here(kind, name) in vars(kind) and kind is not VariableTracker:
                yield kind, name_here(kind, name)


@probes.at_each(lambda: _defined("tp_iter_impl", "unpack_var_sequence"))
def iterated(trace: Any, original: Any, self: Any, tx: Any, *arguments: Any, **keywords: Any) -> Any:
    """Note a set that is iterated over."""
    _note_use(trace, self, tx)
    return original(self, tx, *arguments, **keywords)


@probes.at_each(lambda: _defined("repr_impl"))
def made_text(trace: Any, original: Any, self: Any, tx: Any, *arguments: Any, **keywords: Any) -> Any:
    """Note a set that is made a text, in an order of Dynamo's own."""
    _note_use(trace, self, tx, at_once=True)
    return original(self, tx, *arguments, **keywords)


@probes.at(BuiltinVariable, "call_sorted", "call_min", "call_max", "call_frozenset")
def used_unordered(trace: Any, original: Any, self: Any, tx: Any, *arguments: Any, **keywords: Any) -> Any:
    """Let a set be iterated over for a result that, without a key, does not depend on its order."""
    is_free = len(arguments) == 1 and not keywords.keys() - {"reverse"}
    if not is_free or not _has_order(getattr(arguments[0].realize(), "items", ())):
        return original(self, tx, *arguments, **keywords)
    unordered = trace.state(_Sets).unordered
    unordered.append(arguments[0].realize())
    try:
        return original(self, tx, *arguments, **keywords)
    finally:
        unordered.pop()


def _note_use(trace: Any, variable: Any, tx: Any, *, at_once: bool = False) -> None:
    """Note that a set is iterated over; `at_once`: by Python itself, so that its order cannot be chosen here."""
    state = trace.state(_Sets)
    if not _is_unordered(variable) or len(variable.items) < 2 or any(variable is item for item in state.unordered):
        return
    if tx.f_code.co_name in _SET_POLYFILLS and tx.f_code.co_filename.endswith("torch/_dynamo/polyfills/__init__.py"):
        return
    if variable.source is not None and not tx.output.side_effects.is_modified(variable):
        trace.note("order", variable.source)
        return
    if at_once:  # its order cannot be chosen here
        trace.refuse(CAUSE)
    elif id(variable) not in state.orders or state.orders[id(variable)][1] != list(variable.items):
        # Dynamo uses the order of insertion.
        trace.note("made order", len(variable.items), private_under_way.place())
        if trace.arrangement:
            number = len(trace.of("made order"))
            variable.items = dict(arranged(list(variable.items.items()), trace.arrangement, number))
    state.orders[id(variable)] = variable, list(variable.items)


def _is_constant(variable: Any) -> bool:
    return not isinstance(variable, _KINDS) and bool(variable.is_python_constant())


def _is_unordered(variable: Any) -> bool:
    """Return whether it is a set without an order, or one of a user's class (a variable too since torch 2.15)."""
    is_ordered = isinstance(variable, (DictKeySetVariable, OrderedSetVariable))
    return isinstance(variable, _KINDS) and not is_ordered


def _has_order(keys: Iterable[Any]) -> bool:
    """Whether the items of a set, if these are keys of one, can be sorted in one way only: numbers or texts."""
    variables = [getattr(key, "vt", key) for key in keys]
    if not all(map(_is_constant, variables)):
        return False
    values = [variable.as_python_constant() for variable in variables]
    kinds = {type(value) for value in values}
    return (len(kinds) < 2 or kinds <= {bool, int, float}) and kinds <= _SORTED and all(v == v for v in values)
