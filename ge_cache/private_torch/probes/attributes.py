"""Dynamo hooks that report attributes and keys that a trace finds, or finds absent."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gearcache.ge_cache.private_torch.method_tables import named_methods
from gearcache.ge_cache.private_torch.renamed import name_here

#: Attributes of a tensor that make a tensor.
_TENSOR_ATTRIBUTES = ("T", "mT", "H", "mH", "real", "imag", "data")


def watched_attributes(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that read or test attributes."""
    from torch._dynamo.exc import ObservedAttributeError
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.functions import MemberDescriptorVariable

    slot: Any = MemberDescriptorVariable
    read_slot = slot.tp_descr_get_impl
    attribute = name_here(VariableTracker, "var_getattr")

    conjugates: set[Any] = set()
    outputs: list[Any] = []

    def is_lazy_and_new(variable: Any, tx: Any, name: str) -> bool:
        """Return whether this is the first read of a lazy conjugate, which a frame can return and no graph can."""
        read = (id(tx.output), variable.source, name)
        is_lazy = name in ("H", "mH") and variable.dtype.is_complex and read not in conjugates
        conjugates.add(read)
        outputs.append(tx.output)  # keeps its id from being reused by another trace
        return bool(is_lazy)

    def is_written(variable: Any, tx: Any, name: str) -> bool:
        return bool(tx.output.side_effects.has_pending_mutation_of_attr(variable, name))

    def reading(function: Any) -> Any:
        @functools.wraps(function)
        def var_getattr(self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
            facts.asked_for(name)
            if _is_settings(self) and not is_written(self, tx, name):
                return getattr(_as_module(self), attribute)(tx, name)
            try:
                if _is_made(self, name) and not is_lazy_and_new(self, tx, name):
                    return _without_source(function, self, tx, name, *rest, **keywords)
                result = function(self, tx, name, *rest, **keywords)
                if self.source is not None and isinstance(name, str):
                    _note_maker(facts, self, name)
                    if _may_be_caught(tx) and _is_of_argument(self.source, tx) and not is_written(self, tx, name):
                        facts.attribute(self.source, name, present=True)
                return result
            except ObservedAttributeError:
                if self.source is not None and not is_written(self, tx, name):
                    facts.attribute(self.source, name, present=False)
                raise

        return var_getattr

    def asking(function: Any) -> Any:
        @functools.wraps(function)
        def call_obj_hasattr(self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
            facts.asked_for(name)
            result = function(self, tx, name, *rest, **keywords)
            if isinstance(result, ConstantVariable) and self.source is not None and not is_written(self, tx, name):
                facts.attribute(self.source, name, present=bool(result.value))
            return result

        return call_obj_hasattr

    @functools.wraps(read_slot)
    def tp_descr_get_impl(self: Any, tx: Any, obj: Any, owner: Any) -> Any:
        """Read a slot by its descriptor, `Point.x.__get__(point)`: Dynamo overlooks writes of the trace."""
        name = self.descriptor.__name__
        if not is_written(obj, tx, name):
            return read_slot(self, tx, obj, owner)
        if inspect.getattr_static(type(obj.value), name, None) is not self.descriptor:
            facts.refuse(f"it reads the slot `{name}`, which it has written, by the descriptor of another class")
        return tx.output.side_effects.load_attr(obj, name)

    yield slot, "tp_descr_get_impl", tp_descr_get_impl
    yield from watched_sources()
    for cls in with_subclasses(VariableTracker):
        for name, wrap in ((attribute, reading), ("call_obj_hasattr", asking)):
            if name in vars(cls):
                yield cls, name, wrap(vars(cls)[name])


def _is_settings(variable: Any) -> bool:
    """Whether it is a module of torch's settings, of which Dynamo makes an object since torch 2.14."""
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable
    from torch.utils._config_module import ConfigModule

    return isinstance(variable, UserDefinedObjectVariable) and isinstance(variable.value, ConfigModule)


def _as_module(variable: Any) -> Any:
    """Return the module that settings are: a setting is a fact, and the context variable that keeps it is none.

    Functional collectives read one in every trace. No process can compare another one's context variables.
    """
    from torch._dynamo.variables.misc import PythonModuleVariable

    return PythonModuleVariable(variable.value, source=variable.source)


def _is_made(variable: Any, name: Any) -> bool:
    """Return whether each read of an attribute makes a new tensor: `x.real` is `x` itself where `x` is not complex."""
    from torch._dynamo.variables.tensor import NumpyNdarrayVariable, TensorVariable

    if not isinstance(variable, TensorVariable) or isinstance(variable, NumpyNdarrayVariable):
        return False
    is_tensor = name in _TENSOR_ATTRIBUTES and variable.source is not None and variable.dtype is not None
    return is_tensor and (name != "real" or bool(variable.dtype.is_complex))


def _without_source(function: Any, variable: Any, *arguments: Any, **keywords: Any) -> Any:
    """Read an attribute as if the trace had made the tensor.

    Dynamo assumes that all reads of one path give one object, and reuses the first result (torch 2.13).
    """
    source, variable.source = variable.source, None
    try:
        return function(variable, *arguments, **keywords)
    finally:
        variable.source = source


def watched_sources() -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that find the class of an attribute.

    Dynamo keeps one place for each value and name. Equal numbers and texts are one object wherever they are written, so
    of two classes with `scale = 2.0` only the first would be compared: `torch.compile` misses it too (torch 2.13).
    """
    from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

    caches: dict[type, dict[Any, Any]] = {}

    def of_own_class(walk: Any, classes_of: Callable[[Any], tuple[type, ...]]) -> Any:
        @functools.wraps(walk)
        def get_source_by_walking_mro(self: Any, tx: Any, name: str) -> Any:
            holder = next((cls for cls in classes_of(self) if name in vars(cls)), object)
            tx.output.mro_source_cache = caches.setdefault(holder, {})
            return walk(self, tx, name)

        return get_source_by_walking_mro

    kinds: tuple[tuple[Any, Callable[[Any], tuple[type, ...]]], ...] = (
        (UserDefinedClassVariable, lambda variable: variable.value.__mro__),
        (UserDefinedObjectVariable, lambda variable: type(variable.value).__mro__),
    )
    for kind, classes_of in kinds:
        yield kind, "get_source_by_walking_mro", of_own_class(kind.get_source_by_walking_mro, classes_of)


def _note_maker(facts: Any, variable: Any, name: str) -> None:
    """Note the origin of an attribute that is neither in an object nor in its class."""
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


def watched_keys(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that look a key up, in a dictionary or an object's `__dict__`."""
    from torch._dynamo.variables.dicts import ConstDictVariable, DunderDictVariable

    dictionary: Any = ConstDictVariable
    own_dictionary: Any = DunderDictVariable
    look_up = dictionary.getitem_const_raise_exception_if_absent

    @functools.wraps(look_up)
    def getitem_const_raise_exception_if_absent(self: Any, tx: Any, arg: Any) -> Any:
        """Dynamo guards found keys, and keys that `in` and `get` lack; this guards lookups with a `KeyError`."""
        if self.source is not None and (arg not in self or _may_be_caught(tx)):
            self.install_dict_contains_guard(tx, [arg])
        return look_up(self, tx, arg)

    def finding(call: Any) -> Any:
        @functools.wraps(call)
        def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            """Dynamo guards the value that such a method found, which does not cover that the key may be absent."""
            if name in finders and args and self.source is not None and args[0] in self:
                self.install_dict_contains_guard(tx, [args[0]])
            return call(self, tx, name, args, kwargs)

        return call_method

    finders = ("get", "pop", "setdefault")

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
    yield from named_methods(dictionary, finders, finding)
    # Dynamo guards an object's `__dict__` only by the attributes that are read through it.
    yield own_dictionary, "install_dict_keys_match_guard", install_dict_keys_match_guard
    yield own_dictionary, "install_dict_contains_guard", install_dict_contains_guard


def _may_be_caught(tx: Any) -> bool:
    """Return whether a handler of the method could catch an exception raised at this point of a trace."""
    while tx is not None:
        if tx.current_instruction.exn_tab_entry is not None or (sys.version_info < (3, 11) and tx.block_stack):
            return True
        tx = getattr(tx, "parent", None)
    return False


def _is_of_argument(source: Any, tx: Any) -> bool:
    """Return whether a value belongs to an argument. Those of the instance and the globals are watched between
    calls.
    """
    while (base := getattr(source, "base", None)) is not None:
        source = base
    root = tx.output.root_tx.f_code
    return bool(getattr(source, "local_name", root.co_varnames[0]) != root.co_varnames[0])


def with_subclasses(cls: Any) -> list[Any]:
    """Return a class and all its subclasses."""
    classes = {cls: None}
    for subclass in type.__subclasses__(cls):
        classes |= dict.fromkeys(with_subclasses(subclass))
    return list(classes)
