"""Dynamo hooks that preserve properties of standard containers: bounds, order, class.

Dynamo drops the `maxlen` of a deque that is passed in and the side effect of `move_to_end`, turns a copy of a subclass
of `OrderedDict` into an `OrderedDict`, and copies an object by its `__dict__` alone.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import types
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.method_tables import named_methods
from gearcache.ge_cache.private_torch.renamed import name_here

_HOLDERS = (dict, list, set, frozenset, tuple, collections.deque)
#: Methods by which a class may define its own way of copying.
_WAYS_TO_COPY = ("__getstate__", "__getnewargs__", "__getnewargs_ex__")


def watched_containers(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of Dynamo's functions for deques, ordered dictionaries and copies."""
    yield from _of_deques(facts)
    yield from _of_ordered(facts)
    yield from _of_ordered_subclasses(facts)
    yield from _of_copies(facts)


def _of_deques(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.side_effects import SideEffects
    from torch._dynamo.source import AttrSource
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.lists import BaseListVariable, DequeVariable

    lists: Any = BaseListVariable
    deques: Any = DequeVariable
    constants: Any = ConstantVariable
    effects: Any = SideEffects
    class_of, init_deque, update = lists.cls_for_instance, deques.__init__, effects.codegen_update_mutated
    call = deques.call_method

    @functools.wraps(class_of)
    def cls_for_instance(obj: Any) -> Any:
        if type(obj) is not collections.deque:
            return class_of(obj)

        def make(items: Any, source: Any) -> Any:
            install_guard(AttrSource(source, "maxlen").make_guard(GuardBuilder.EQUALS_MATCH))
            return deques(items, maxlen=constants.create(obj.maxlen), source=source)

        return make

    @functools.wraps(init_deque)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        init_deque(self, *arguments, **keywords)
        if self.maxlen.as_python_constant() == 0:  # `items[-0:]` is the whole list
            self.items.clear()

    @functools.wraps(call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = call(self, tx, name, args, kwargs)
        if self.items and self.maxlen.as_python_constant() == 0:
            facts.refuse("it fills a deque whose maxlen is 0, which a trace does: use None, or a maxlen of 1 or more")
        return result

    @functools.wraps(update)
    def codegen_update_mutated(self: Any, *arguments: Any, **keywords: Any) -> None:
        """Write deques back: the final content is written at once, so no bound is reached on the way."""
        bounded = [
            (variable, variable.maxlen)
            for variable in self._get_modified_vars()
            if isinstance(variable, deques) and not variable.maxlen.is_constant_none()
        ]
        for variable, _ in bounded:
            variable.maxlen = constants.create(None)
        try:
            update(self, *arguments, **keywords)
        finally:
            for variable, maxlen in bounded:
                variable.maxlen = maxlen

    def bounded_as(function: Any) -> Any:
        """Wrap a function that makes a deque from another one, so that the result has the same bound."""

        @functools.wraps(function)
        def make(self: Any, *arguments: Any, **keywords: Any) -> Any:
            result = function(self, *arguments, **keywords)
            if isinstance(result, deques) and result is not self:
                result.maxlen, maxlen = self.maxlen, self.maxlen.as_python_constant()
                result.items = result.items[-maxlen:] if maxlen else result.items
            return result

        return make

    yield lists, "cls_for_instance", cls_for_instance
    yield deques, "__init__", init
    yield deques, "call_method", call_method
    if hasattr(lists, "modified"):  # until torch 2.14; since then these keep the bound
        for name in ("modified", "sq_repeat_impl"):
            yield lists, name, bounded_as(getattr(lists, name))
    yield effects, "codegen_update_mutated", codegen_update_mutated


def _of_ordered(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.user_defined import OrderedDictVariable

    ordered: Any = OrderedDictVariable
    variable: Any = VariableTracker
    representation = name_here(ordered, "repr_impl")
    represent = getattr(ordered, representation)

    def class_of(variable: Any) -> type:
        """Return the class; since torch 2.14 the variable represents only an `OrderedDict` itself."""
        cls: type = getattr(variable, "value_type", collections.OrderedDict)
        return cls

    def calling(call: Any) -> Any:
        @functools.wraps(call)
        def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "copy" and class_of(self) is not collections.OrderedDict:
                _refuse_copy(facts, class_of(self))
            if name == "__reduce_ex__" and not hasattr(self, "value_type"):
                return tx.inline_user_function_return(variable.build(tx, _parts_of_ordered), [self], {})
            result = call(self, tx, name, args, kwargs)
            if name == "move_to_end":
                if not all(argument.is_python_constant() for argument in (*args, *kwargs.values())):
                    facts.refuse(
                        "it moves an object by `move_to_end`, of which a trace forgets the end: use a text as the key"
                    )
                getattr(self, "_base_vt", self).should_reconstruct_all = True
            return result

        return call_method

    @functools.wraps(represent)
    def repr_impl(self: Any, tx: Any) -> Any:
        text = represent(self, tx)
        if class_of(self) is collections.OrderedDict:
            return text
        name = class_of(self).__name__
        return variable.build(tx, name + text.as_python_constant().removeprefix("OrderedDict"))

    yield from named_methods(ordered, ("move_to_end",), calling)
    yield ordered, representation, repr_impl


def _refuse_copy(facts: Any, cls: type) -> None:
    facts.refuse(
        f"it copies a `{cls.__qualname__}` by `copy()` or `|`, of which a trace makes an `OrderedDict`: call the class "
        "with the old one as its argument"
    )


def _of_ordered_subclasses(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Handle subclasses of `OrderedDict`: since torch 2.14 a variable of their own, before one of `_of_ordered`."""
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.user_defined import OrderedDictVariable, UserDefinedDictVariable

    dictionaries: Any = UserDefinedDictVariable
    variable: Any = VariableTracker
    if issubclass(OrderedDictVariable, UserDefinedDictVariable):
        return
    representation = name_here(dictionaries, "repr_impl")

    def plain(self: Any, name: str) -> Any:
        """Return the method without this replacement, from its base where that defines it."""
        original = originals.get(name)
        return getattr(super(dictionaries, self), name) if original is None else functools.partial(original, self)

    originals = {name: vars(dictionaries).get(name) for name in ("call_method", "nb_or_impl", representation)}

    def is_ordered(dictionary: Any) -> bool:
        return issubclass(dictionary.value_type, collections.OrderedDict)

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "copy" and is_ordered(self) and self.value_type.copy is collections.OrderedDict.copy:
            _refuse_copy(facts, self.value_type)
        return plain(self, "call_method")(tx, name, args, kwargs)

    def nb_or_impl(self: Any, tx: Any, *arguments: Any, **keywords: Any) -> Any:
        if is_ordered(self):
            _refuse_copy(facts, self.value_type)
        return plain(self, "nb_or_impl")(tx, *arguments, **keywords)

    def repr_impl(self: Any, tx: Any) -> Any:
        result, cls = plain(self, representation)(tx), self.value_type
        text = result.as_python_constant() if is_ordered(self) and result.is_python_constant() else ""
        has_class_name = text.startswith("OrderedDict(") and cls.__repr__ is collections.OrderedDict.__repr__
        return variable.build(tx, cls.__name__ + text.removeprefix("OrderedDict")) if has_class_name else result

    yield dictionaries, "call_method", call_method
    yield dictionaries, "nb_or_impl", nb_or_impl
    yield dictionaries, representation, repr_impl


def _of_copies(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    objects: Any = UserDefinedObjectVariable
    variable: Any = VariableTracker
    call = objects.call_method

    @functools.wraps(call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        """`object.__reduce_ex__`, which `copy` calls, calls `__reduce__`, and also returns items."""
        cls = self.value_type
        if name != "__reduce_ex__" or getattr(cls, name) is not object.__reduce_ex__:
            return call(self, tx, name, args, kwargs)
        if isinstance(cls.__reduce__, types.FunctionType):
            return self.call_method(tx, "__reduce__", [], {})
        parts = _parts_of_ordered if cls.__reduce__ is collections.OrderedDict.__reduce__ else _PARTS.get(_holder(cls))
        if parts is None or _is_copied_in_its_own_way(cls):
            facts.refuse(
                f"it copies a `{cls.__qualname__}` by `copy`, of which a trace copies the `__dict__` alone: "
                "make a new one from its parts"
            )
        elif parts is not _parts_of_object:
            return tx.inline_user_function_return(variable.build(tx, parts), [self], {})
        return call(self, tx, name, args, kwargs)

    yield objects, "call_method", call_method


def _parts_of_object() -> None:
    """Placeholder for Dynamo's own function, which is right for an object that has only attributes."""


def _parts_of_ordered(ordered: Any) -> Any:
    """`OrderedDict.__reduce__`, to be traced."""
    return type(ordered), (), ordered.__dict__ or None, None, iter(ordered.items())


def _parts_of_dict(dictionary: Any) -> Any:
    """`object.__reduce_ex__` of a dictionary, to be traced."""
    return copyreg.__newobj__, (type(dictionary),), dictionary.__dict__, None, iter(dictionary.items())  # type: ignore[attr-defined]


def _parts_of_list(items: Any) -> Any:
    """`object.__reduce_ex__` of a list, to be traced."""
    return copyreg.__newobj__, (type(items),), items.__dict__, iter(items), None  # type: ignore[attr-defined]


_PARTS: dict[Any, Any] = {object: _parts_of_object, dict: _parts_of_dict, list: _parts_of_list}


def _holder(cls: Any) -> type:
    """Return the builtin class that holds the items of an object, `object` if none does."""
    return next((holder for holder in _HOLDERS if issubclass(cls, holder)), object)


def _is_copied_in_its_own_way(cls: Any) -> bool:
    """Return whether the state of an object differs from its `__dict__`."""
    if any(getattr(cls, name, None) is not getattr(object, name, None) for name in _WAYS_TO_COPY):
        return True
    return any(
        isinstance(attribute, types.MemberDescriptorType) for base in cls.__mro__ for attribute in vars(base).values()
    )
