"""Dynamo hooks that report what a trace reads without guarding it."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch.corrections import comparisons as private_comparisons
from gearcache.ge_cache.private_torch.corrections import flags as private_flags
from gearcache.ge_cache.private_torch.corrections import iterators as private_iterators
from gearcache.ge_cache.private_torch.corrections import made_objects as private_made_objects
from gearcache.ge_cache.private_torch.corrections import resized as private_resized
from gearcache.ge_cache.private_torch.corrections import symbolic as private_symbolic
from gearcache.ge_cache.private_torch.corrections import user_containers as private_user_containers
from gearcache.ge_cache.private_torch.probes import attributes as private_attributes
from gearcache.ge_cache.private_torch.probes import constants as private_constants
from gearcache.ge_cache.private_torch.probes import escapes as private_escapes
from gearcache.ge_cache.private_torch.probes import loggers as private_loggers
from gearcache.ge_cache.private_torch.probes import script_objects as private_script_objects
from gearcache.ge_cache.private_torch.probes import sets as private_sets
from gearcache.ge_cache.private_torch.probes import texts as private_texts


@contextlib.contextmanager
def watched_facts(facts: Any) -> Iterator[None]:
    """Report to `dependencies.facts.Facts` the classes, attributes, type tests, orders and hashes of a trace."""
    from torch._dynamo.variables import object_protocol
    from torch._dynamo.variables.builtin import BuiltinVariable

    protocol: Any = object_protocol
    protocol._get_cached_slots.cache_clear()  # a class may have got a `__bool__` since the last trace
    handlers = BuiltinVariable.call_function_handler_cache  # they hold the functions that are replaced here
    handlers.clear()
    modules = [module for title, module in sys.modules.items() if title.startswith("torch._dynamo")]
    try:
        with contextlib.ExitStack() as stack:
            # One after the other: the second replacement of a function wraps the first.
            for hooks in _WATCHED:
                stack.enter_context(exchanged(_exchanges(hooks(facts), modules)))
            yield
    finally:
        handlers.clear()


def _exchanges(
    replacements: Iterator[tuple[Any, str, Any]], modules: list[types.ModuleType]
) -> Iterator[tuple[Any, str, Any]]:
    exchanges = [exchange for entry in replacements for exchange in _places(*entry, modules)]
    targets = {(id(owner), name) for owner, name, _ in exchanges}
    if len(targets) < len(exchanges):
        raise AssertionError("one function is replaced twice at once")
    for owner, name, replacement in exchanges:
        original: Any = owner[name] if isinstance(owner, dict) else vars(owner).get(name, getattr(owner, name))
        function: Any = functools.wraps(replacement)(here(replacement, getattr(original, "__func__", original)))
        yield owner, name, staticmethod(function) if isinstance(original, staticmethod) else function


def _places(owner: Any, name: str, replacement: Any, modules: list[types.ModuleType]) -> Iterator[tuple[Any, str, Any]]:
    """Yield a replacement for each module of Dynamo that has imported the function; the set of modules varies."""
    yield owner, name, replacement
    if isinstance(owner, types.ModuleType):
        function = vars(owner)[name]
        yield from (
            (other, name, replacement) for other in modules if other is not owner and vars(other).get(name) is function
        )


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


def _of_type_tests(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables import object_protocol
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._library.fake_class_registry import FakeScriptObject

    builtin: Any = BuiltinVariable
    protocol: Any = object_protocol
    isinstance_of, issubclass_of = builtin.call_isinstance, protocol.generic_issubclass

    @functools.wraps(isinstance_of)
    def call_isinstance(self: Any, tx: Any, arg: Any, isinstance_type_var: Any) -> Any:
        result = isinstance_of(self, tx, arg, isinstance_type_var)
        # From its own dictionary: for some classes `value` is computed from the variable's content, if that is
        # constant.
        value = vars(arg.realize()).get("value", arg) if arg.source is not None else arg
        if type(value) is FakeScriptObject:  # it represents a process group, which has a check of its own
            return result
        classes = [*_classes(isinstance_type_var)]
        facts.type_test("instance", arg.python_type(), arg.source, value, classes, result.as_python_constant())
        return result

    @functools.wraps(issubclass_of)
    def generic_issubclass(tx: Any, derived: Any, cls: Any) -> Any:
        result = issubclass_of(tx, derived, cls)
        if result.is_python_constant():
            value = derived.get_real_python_backed_value()
            facts.type_test("subclass", value, derived.source, value, [*_classes(cls)], result.as_python_constant())
        return result

    yield builtin, "call_isinstance", call_isinstance
    yield protocol, "generic_issubclass", generic_issubclass


def _classes(variable: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the classes of a variable that may be a tuple of classes, each with its source."""
    from torch._dynamo.variables.lists import TupleVariable

    variable = variable.realize()
    if isinstance(variable, TupleVariable):
        for item in variable.items:
            yield from _classes(item)
        return
    value = variable.as_python_constant()
    parts = typing.get_args(value) if typing.get_origin(value) in (types.UnionType, typing.Union) else None
    yield from ((part, None) for part in parts) if parts is not None else [(value, variable.source)]


_WATCHED = (
    _of_classes,
    private_attributes.watched_attributes,
    private_attributes.watched_keys,
    _of_type_tests,
    private_sets.watched_sets,
    private_iterators.watched_iterators,
    private_user_containers.watched_user_containers,
    private_comparisons.watched_comparisons,
    private_constants.watched_constants,
    private_symbolic.watched_numbers,
    private_symbolic.watched_comparisons,
    private_symbolic.watched_ranges,
    private_texts.watched_addresses,
    private_texts.watched_texts,
    private_resized.watched_sizes,
    private_made_objects.watched_made_objects,
    private_escapes.watched_escapes,
    private_script_objects.watched_script_objects,
    private_loggers.watched_loggers,
    private_flags.watched_flags,
)
