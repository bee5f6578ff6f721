"""Private names of torch with which a trace is watched for facts of the process that no guard of Dynamo tells of."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch import comparisons as private_comparisons
from gearcache.ge_cache.private_torch import constants as private_constants
from gearcache.ge_cache.private_torch import iterators as private_iterators
from gearcache.ge_cache.private_torch import sets as private_sets
from gearcache.ge_cache.private_torch import symbolic as private_symbolic

_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")


@contextlib.contextmanager
def watched_facts(facts: Any) -> Iterator[None]:
    """Tell `dependencies.facts.Facts` which classes, attributes, type tests, orders and hashes a trace depends on."""
    from torch._dynamo.variables import object_protocol
    from torch._dynamo.variables.builtin import BuiltinVariable

    protocol: Any = object_protocol
    protocol._get_cached_slots.cache_clear()  # a class may have got a `__bool__` since the last trace
    handlers = BuiltinVariable.call_function_handler_cache  # they hold the functions that are replaced here
    replacements = (
        *_of_classes(facts),
        *_of_attributes(facts),
        *_of_keys(facts),
        *_of_type_tests(facts),
        *private_iterators.watched_iterators(facts),
        *private_sets.watched_sets(facts),
        *private_comparisons.watched_comparisons(facts),
        *private_constants.watched_constants(facts),
        *private_symbolic.watched_symbols(facts),
        *_of_addresses(facts),
        *_of_texts(facts),
    )
    patches = []
    for owner, name, replacement in replacements:
        original = vars(owner)[name]
        chosen: Any = functools.wraps(replacement)(here(replacement, getattr(original, "__func__", original)))
        patches.append((owner, name, staticmethod(chosen) if isinstance(original, staticmethod) else chosen))
    handlers.clear()
    try:
        with exchanged(patches):
            yield
    finally:
        handlers.clear()


def _of_classes(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables import user_defined

    class_variable: Any = user_defined.UserDefinedClassVariable
    object_variable: Any = user_defined.UserDefinedObjectVariable
    of_class, of_object, call = class_variable.__init__, object_variable.__init__, class_variable.call_function

    @functools.wraps(of_class)
    def init_class(self: Any, *arguments: Any, **keywords: Any) -> None:
        of_class(self, *arguments, **keywords)
        facts.met_class(self.value, self.source)

    @functools.wraps(of_object)
    def init_object(self: Any, *arguments: Any, **keywords: Any) -> None:
        of_object(self, *arguments, **keywords)
        facts.met_class(self.value_type, self.cls_source, made=self.source is None)

    @functools.wraps(call)
    def call_function(self: Any, *arguments: Any, **keywords: Any) -> Any:
        facts.called_class(self.value, self.source)
        return call(self, *arguments, **keywords)

    yield class_variable, "__init__", init_class
    yield object_variable, "__init__", init_object
    yield class_variable, "call_function", call_function


def _of_attributes(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.exc import ObservedAttributeError
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.constant import ConstantVariable

    def is_written(variable: Any, tx: Any, name: str) -> bool:
        return bool(tx.output.side_effects.has_pending_mutation_of_attr(variable, name))

    def reading(function: Any) -> Any:
        @functools.wraps(function)
        def var_getattr(self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
            facts.asked_for(name)
            try:
                found = function(self, tx, name, *rest, **keywords)
                if self.source is not None and isinstance(name, str):
                    _note_maker(facts, self, name)
                    if _may_be_caught(tx) and _is_of_argument(self.source, tx) and not is_written(self, tx, name):
                        facts.attribute(self.source, name, present=True)
                return found
            except ObservedAttributeError:
                if self.source is not None and not is_written(self, tx, name):
                    facts.attribute(self.source, name, present=False)
                raise

        return var_getattr

    def asking(function: Any) -> Any:
        @functools.wraps(function)
        def call_obj_hasattr(self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
            facts.asked_for(name)
            found = function(self, tx, name, *rest, **keywords)
            if isinstance(found, ConstantVariable) and self.source is not None and not is_written(self, tx, name):
                facts.attribute(self.source, name, present=bool(found.value))
            return found

        return call_obj_hasattr

    for cls in _all_of(VariableTracker):
        for name, watched in (("var_getattr", reading), ("call_obj_hasattr", asking)):
            if name in vars(cls):
                yield cls, name, watched(vars(cls)[name])


def _note_maker(facts: Any, variable: Any, name: str) -> None:
    """Note where an attribute came from that neither an object nor its class holds."""
    from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

    if not isinstance(variable, (UserDefinedClassVariable, UserDefinedObjectVariable)):
        return
    value: Any = variable.value
    holders = value.__mro__ if isinstance(value, type) else type(value).__mro__
    if any(name in vars(base) for base in holders):
        return
    if isinstance(value, type):
        facts.of_metaclass(value, name)
    elif getattr(type(value), "__getattribute__", None) is object.__getattribute__ and hasattr(
        type(value), "__getattr__"
    ):
        facts.made_attribute(variable.source, value, name)


def _of_keys(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.dicts import ConstDictVariable, DunderDictVariable

    dictionary: Any = ConstDictVariable
    own: Any = DunderDictVariable
    look_up, call = dictionary.getitem_const_raise_exception_if_absent, dictionary.call_method

    @functools.wraps(look_up)
    def getitem_const_raise_exception_if_absent(self: Any, tx: Any, arg: Any) -> Any:
        """Dynamo guards what was found, and what `in` and `get` did not find; here is what raises a `KeyError`."""
        if self.source is not None and (arg not in self or _may_be_caught(tx)):
            self.install_dict_contains_guard(tx, [arg])
        return look_up(self, tx, arg)

    @functools.wraps(call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Dynamo guards what such a method found by its value, which does not tell that it may be absent."""
        if name in ("get", "pop", "setdefault") and args and self.source is not None and args[0] in self:
            self.install_dict_contains_guard(tx, [args[0]])
        return call(self, tx, name, args, kwargs)

    def install_dict_keys_match_guard(self: Any) -> None:
        if self.source is not None:
            facts.own_keys(self.source)

    def install_dict_contains_guard(self: Any, tx: Any, args: Any) -> None:
        if self.source is None:
            return
        if args[0].is_python_constant():
            facts.own_key(self.source, args[0].as_python_constant())
        else:
            facts.own_keys(self.source)

    yield dictionary, "getitem_const_raise_exception_if_absent", getitem_const_raise_exception_if_absent
    yield dictionary, "call_method", call_method
    # Dynamo guards nothing of an object's `__dict__` but the attributes that are read through it.
    yield own, "install_dict_keys_match_guard", install_dict_keys_match_guard
    yield own, "install_dict_contains_guard", install_dict_contains_guard


def _may_be_caught(tx: Any) -> bool:
    """Whether an exception raised at this point of a trace would be met by a handler of the method."""
    while tx is not None:
        if tx.current_instruction.exn_tab_entry is not None or (sys.version_info < (3, 11) and tx.block_stack):
            return True
        tx = getattr(tx, "parent", None)
    return False


def _is_of_argument(source: Any, tx: Any) -> bool:
    """Whether a value comes with the call. What the instance and the globals hold is watched between calls."""
    while (base := getattr(source, "base", None)) is not None:
        source = base
    root = tx.output.root_tx.f_code
    return getattr(source, "local_name", root.co_varnames[0]) != root.co_varnames[0]


def _all_of(cls: Any) -> list[Any]:
    """Return a class and all that inherit from it."""
    found = {cls: None}
    for each in type.__subclasses__(cls):
        found |= dict.fromkeys(_all_of(each))
    return list(found)


def _of_type_tests(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables import object_protocol
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._library.fake_class_registry import FakeScriptObject

    builtin: Any = BuiltinVariable
    protocol: Any = object_protocol
    isinstance_of, issubclass_of = builtin.call_isinstance, protocol.generic_issubclass

    @functools.wraps(isinstance_of)
    def call_isinstance(self: Any, tx: Any, arg: Any, isinstance_type_var: Any) -> Any:
        found = isinstance_of(self, tx, arg, isinstance_type_var)
        # Of its own dictionary: for some classes `value` is made from what is in the variable, if that is constant.
        value = vars(arg.realize()).get("value", arg) if arg.source is not None else arg
        if type(value) is FakeScriptObject:  # it stands for a process group, which has a check of its own
            return found
        asked = [*_classes(isinstance_type_var)]
        facts.type_test("instance", arg.python_type(), arg.source, value, asked, found.as_python_constant())
        return found

    @functools.wraps(issubclass_of)
    def generic_issubclass(tx: Any, derived: Any, cls: Any) -> Any:
        found = issubclass_of(tx, derived, cls)
        if found.is_python_constant():
            value = derived.get_real_python_backed_value()
            facts.type_test("subclass", value, derived.source, value, [*_classes(cls)], found.as_python_constant())
        return found

    yield builtin, "call_isinstance", call_isinstance
    yield protocol, "generic_issubclass", generic_issubclass


def _classes(variable: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the classes of a variable that may be a tuple of such, each with its source."""
    from torch._dynamo.variables.lists import TupleVariable

    variable = variable.realize()
    if isinstance(variable, TupleVariable):
        for item in variable.items:
            yield from _classes(item)
        return
    value = variable.as_python_constant()
    parts = typing.get_args(value) if typing.get_origin(value) in (types.UnionType, typing.Union) else None
    yield from ((part, None) for part in parts) if parts is not None else [(value, variable.source)]


def _of_texts(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Texts of objects: Dynamo leaves `f"{self.kind}"` open, and then finds nothing under such a key."""
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    translator: Any = InstructionTranslatorBase
    builtin: Any = BuiltinVariable
    format_value = translator._format_value

    @functools.wraps(format_value)
    def _format_value(self: Any, fmt_spec: Any, flags: int) -> None:
        value = self.stack[-1].realize()
        if isinstance(value, UserDefinedObjectVariable) and flags & 3 == 0 and fmt_spec.as_python_constant() == "":
            own: Any = value.value_type.__format__
            if own is object.__format__:
                flags |= 1  # which is what it does: `str(value)`
        format_value(self, fmt_spec, flags)

    def texts(function: Any) -> Any:
        @functools.wraps(function)
        def text(self: Any, tx: Any, arg: Any) -> Any:
            if isinstance(arg, UserDefinedObjectVariable) and arg.source is not None:
                own: Any = arg.value_type
                if isinstance(own.__repr__, types.FunctionType) and (is_repr or own.__str__ is object.__str__):
                    return VariableTracker.build(tx, own.__repr__).call_function(tx, [arg], {})
                if is_repr or own.__str__ is object.__str__:
                    _refuse_unread_text(facts, own)
            found = function(self, tx, arg)
            is_made = found is not None and found.is_python_constant() and not arg.is_python_constant()
            if is_made and _ADDRESS.search(str(found.as_python_constant())):
                facts.refuse("it makes a text of an object's address, which is another one in each process")
            return found

        is_repr = function.__name__ == "call_repr"
        return text

    yield translator, "_format_value", _format_value
    for name in ("call_str", "call_repr"):
        yield builtin, name, texts(vars(builtin)[name])


def _refuse_unread_text(facts: Any, cls: type) -> None:
    if issubclass(cls, (list, tuple, set, frozenset, types.SimpleNamespace)) and not hasattr(cls, "_fields"):
        facts.refuse(
            f"it makes a text of `{cls.__qualname__}`, whose items a trace does not read: make it of the items"
        )


def _of_addresses(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables import object_protocol
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.constant import ConstantVariable, FakeIdVariable
    from torch._dynamo.variables.functions import PolyfilledFunctionVariable
    from torch._dynamo.variables.hashable import HashableTracker

    constants: Any = ConstantVariable
    key: Any = HashableTracker
    builtin: Any = BuiltinVariable
    protocol: Any = object_protocol
    polyfilled: Any = PolyfilledFunctionVariable
    id_of, hash_of, call, init_key = builtin.call_id, protocol.generic_hash, polyfilled.call_function, key.__init__
    constant_call = constants.call_method
    keys = 0

    @functools.wraps(id_of)
    def call_id(self: Any, tx: Any, *arguments: Any) -> Any:
        found = id_of(self, tx, *arguments)
        if not isinstance(found, FakeIdVariable):
            facts.refuse("it calls `id()`, whose result is another one in each process")
        return found

    @functools.wraps(hash_of)
    def generic_hash(tx: Any, obj: Any) -> Any:
        found = hash_of(tx, obj)
        if keys == 0 and not isinstance(found, FakeIdVariable):
            constant = obj.is_python_constant()
            facts.hashed(obj.as_python_constant() if constant else obj.get_real_python_backed_value())
        return found

    @functools.wraps(init_key)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        """Make a key of a dictionary: what its hash is matters to nobody."""
        nonlocal keys
        keys += 1
        try:
            init_key(self, *arguments, **keywords)
        finally:
            keys -= 1

    @functools.wraps(call)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.can_constant_fold_through() and not args and not kwargs:
            facts.folded(self.fn, self.source)
        return call(self, tx, args, kwargs)

    @functools.wraps(constant_call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "__hash__":
            facts.hashed(self.value)
        return constant_call(self, tx, name, args, kwargs)

    yield builtin, "call_id", call_id
    yield constants, "call_method", call_method
    yield protocol, "generic_hash", generic_hash
    yield key, "__init__", init
    yield polyfilled, "call_function", call_function
