"""Dynamo hooks that detect reads of a value that the trace wrote in another place.

Dynamo keeps a trace's writes with the object that is written. A read through that object sees the new value. A class
that is read through an instance or a subclass, and a global that is also an attribute of its module, are read as they
were before the trace.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch.renamed import name_here


@contextlib.contextmanager
def watched_views(stale: Callable[[str, str], None], missing: Callable[[str], None]) -> Iterator[None]:
    """Call `stale` with a name and a text for the written object before Dynamo reads an old value of it.

    Call `missing` with the name of a missing attribute that is deleted, which Dynamo allows.
    """
    from torch._dynamo.side_effects import SideEffects
    from torch._dynamo.symbolic_convert import InstructionTranslator, InstructionTranslatorBase
    from torch._dynamo.variables.misc import DeletedVariable, PythonModuleVariable
    from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

    instance: Any = UserDefinedObjectVariable
    of_class: Any = UserDefinedClassVariable
    of_module: Any = PythonModuleVariable
    translator: Any = InstructionTranslatorBase
    side_effects: Any = SideEffects

    def effects() -> Any:
        return InstructionTranslator.current_tx().output.side_effects

    shown: dict[int, Any] = {}  # classes and modules whose `__dict__` the trace uses

    def show(holder: Any) -> None:
        shown[id(holder)] = holder
        variable = effects().id_to_variable.get(id(holder))
        for name in effects().store_attr_mutations.get(variable, ()):
            stale(name, _describe(holder))
        if isinstance(holder, types.ModuleType):
            for name in InstructionTranslator.current_tx().symbolic_globals:
                check_module(holder, name)

    def check(holders: Iterable[Any], name: str) -> None:
        pending = effects()
        if not pending.store_attr_mutations:
            return
        for holder in holders:
            variable = pending.id_to_variable.get(id(holder))
            if variable is not None and name in pending.store_attr_mutations.get(variable, ()):
                stale(name, _describe(holder))

    def check_module(module: types.ModuleType, name: str) -> None:
        root = InstructionTranslator.current_tx()
        if vars(module) is root.output.global_scope and name in root.symbolic_globals:
            stale(name, f"globals of `{module.__name__}`")

    def lookup_class_mro_attr(self: Any, name: str) -> Any:
        pending = effects()
        if not pending.has_pending_mutation_of_attr(self, name) and name not in _instance_dict(self.value):
            check(type(self.value).__mro__, name)
        return of_instance(self, name)

    def lookup_cls_mro_attr(self: Any, name: str) -> Any:
        check(self.value.__mro__, name)
        return of_bases(self, name)

    def lookup_metaclass_attr(self: Any, name: str) -> Any:
        if name == "__dict__":
            show(self.value)
        check(type(self.value).__mro__, name)
        return of_metaclass(self, name)

    def class_has(self: Any, tx: Any, name: str) -> Any:
        check(self.value.__mro__, name)
        return has_of_class(self, tx, name)

    def module_has(self: Any, tx: Any, name: str) -> Any:
        check((self.value,), name)
        check_module(self.value, name)
        return has_of_module(self, tx, name)

    def module_getattr(self: Any, tx: Any, name: str) -> Any:
        if name == "__dict__":
            show(self.value)
        check_module(self.value, name)
        return get_of_module(self, tx, name)

    def load_global(self: Any, instruction: Any) -> Any:
        if self.f_globals is self.output.global_scope:
            module = sys.modules.get(self.f_globals.get("__name__", ""))
            if module is not None and vars(module) is self.f_globals:
                check((module,), instruction.argval)
        return get_global(self, instruction)

    def store_attr(self: Any, item: Any, name: str, value: Any, *rest: Any, **keywords: Any) -> Any:
        if isinstance(value, DeletedVariable):
            if self.has_pending_mutation_of_attr(item, name):
                is_there = not isinstance(self.load_attr(item, name, deleted_ok=True), DeletedVariable)
            else:
                is_there = name in _attributes(getattr(item, "value", None))
            if not is_there:
                missing(name)
        if id(getattr(item, "value", None)) in shown:
            stale(name, _describe(item.value))
        return store(self, item, name, value, *rest, **keywords)

    store = side_effects.store_attr
    of_instance = instance.lookup_class_mro_attr
    of_bases, of_metaclass = of_class.lookup_cls_mro_attr, of_class.lookup_metaclass_attr
    has_of_class, has_of_module = of_class.call_obj_hasattr, of_module.call_obj_hasattr
    attribute = name_here(of_module, "var_getattr")
    get_of_module, get_global = getattr(of_module, attribute), translator._load_global
    replacements = [
        (instance, "lookup_class_mro_attr", here(lookup_class_mro_attr, of_instance)),
        (of_class, "lookup_cls_mro_attr", here(lookup_cls_mro_attr, of_bases)),
        (of_class, "lookup_metaclass_attr", here(lookup_metaclass_attr, of_metaclass)),
        (of_class, "call_obj_hasattr", here(class_has, has_of_class)),
        (of_module, "call_obj_hasattr", here(module_has, has_of_module)),
        (of_module, attribute, here(module_getattr, get_of_module)),
        (side_effects, "store_attr", here(store_attr, store)),
        (translator, "_load_global", here(load_global, get_global)),
    ]
    with exchanged(replacements):
        yield


def _describe(holder: Any) -> str:
    return f"{'class' if isinstance(holder, type) else 'module'} `{holder.__name__}`"


def _instance_dict(value: Any) -> Any:
    """Return the dictionary of an object, bypassing its class."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


def _attributes(value: Any) -> set[str]:
    """Return the names of an object's attributes that can be deleted."""
    instance_dict = _instance_dict(value)
    names = {
        *instance_dict,
        *(name for part in ("_parameters", "_buffers", "_modules") for name in instance_dict.get(part, ())),
    }
    slots = {name for base in type(value).__mro__ for name, member in vars(base).items() if _is_slot(member)}
    return names | {name for name in slots if hasattr(value, name)}


def _is_slot(value: Any) -> bool:
    return isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType, property))
