"""Translate Dynamo's guards to checks: one translation per guard kind.

The tables name every kind of torch 2.13, and those added in 2.15. A kind is translated to a check, is covered by
another mechanism (`_COVERED`, with the reason), or makes the method uncacheable.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any

import torch

from gearcache.errors import CaptureError, GearcacheError, UncacheableGuard
from gearcache.ge_cache.capture.source_paths import is_of_namedtuple
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.guards.access import Access, Walker
from gearcache.guards.evidence.checks import Check, first_failure, observe, told_apart
from gearcache.guards.evidence.constants import NotConstant, wanted_key
from gearcache.interrupts import raise_interrupt

#: Guard kinds that need no check of their own, and why.
_COVERED = {
    "TENSOR_MATCH": "inputs: `TensorGuards` at each call; weights: the key or `layout_checks`; others: `tensor_checks`",
    "SHAPE_ENV": "evaluated for every gear when it is compiled; the gear's sizes are checked on every call",
    "GLOBAL_STATE": "`GlobalStateGuard` on every call, and the key",
    "GRAD_MODE": "a trace that asks for the mode has it as a check of each call; all others run without autograd",
    "DETERMINISTIC_ALGORITHMS": "part of the global state",
    "DEFAULT_DEVICE": "part of the key",
    "TORCH_FUNCTION_STATE": "a trace under a torch function mode is refused",
    "FSDP_TRAINING_STATE": "inference only",
    "FUNCTORCH_STACK_MATCH": "inside a transform of `torch.func` the method itself runs; a graph holds its own ones",
    "AUTOGRAD_SAVED_TENSORS_HOOKS": "inference only: nothing is saved for a backward pass",
}

#: Those of them that are about the process, and not about an object on a path.
_WITHOUT_OBJECT = _COVERED.keys() - {"TENSOR_MATCH"}

#: Guard kinds with a direct counterpart; the value at the source gives the expected data.
_DIRECT = {
    "TYPE_MATCH": "type",
    "CONSTANT_MATCH": "constant",
    "EQUALS_MATCH": "constant",
    "BOOL_MATCH": "constant",
    "NONE_MATCH": "constant",
    "CONSTANT_SUBCLASS_MATCH": "constant",
    "RANGE_ITERATOR_MATCH": "constant",
    "SEQUENCE_LENGTH": "length",
    "DICT_KEYS_MATCH": "keys",
    "MAPPING_KEYS_CHECK": "keys",
    "NOT_NONE_MATCH": "not_none",
    "WEAKREF_ALIVE": "not_none",
    "MODULE_MATCH": "name",
    "CLASS_MATCH": "name",
    "BUILTIN_MATCH": "name",
    "FUNCTION_MATCH": "function",
    "CLOSURE_MATCH": "function",
    "EMPTY_NN_MODULE_HOOKS_DICT": "empty",
    "NN_MODULE": "type",
}
_WITH_ARGUMENT = {
    "HASATTR": "has_attr",
    "NOT_PRESENT_IN_GENERIC_DICT": "lacks",
    "DICT_CONTAINS": "contains",
    "DICT_NOT_CONTAINS": "lacks",
    "SET_CONTAINS": "contains",
    "SET_NOT_CONTAINS": "lacks",
}
#: Guard kinds that make a method uncacheable, and why.
_REFUSED = {
    "DICT_VERSION": "a dictionary's version exists in one process only",
    "TUPLE_ITERATOR_LEN": "an iterator as an argument cannot be looked at twice",
    "COUNT_ITERATOR_MATCH": "an iterator as an argument cannot be looked at twice",
    "DUAL_LEVEL": "forward-mode autograd is not inference",
    "TENSOR_SUBCLASS_METADATA_MATCH": "tensor subclasses are not supported",
    "DTENSOR_SPEC_MATCH": "distributed tensors are not supported",
    "DISPATCH_KEY_SET_MATCH": "dispatch keys are not portable",
    "FAKE_SCRIPT_TYPE_MATCH": "of script objects, process groups are supported",
    "OPAQUE_OBJ_GUARD_FN_MATCH": "of opaque objects, process groups are supported",
    # Of torch 2.14 and 2.15.
    "COW_TENSOR_MATCH": "whether a tensor shares its memory until it is written is a fact of one process",
    "CURRENT_STREAM_MATCH": "streams of a device are not supported",
    "LIST_REVERSEITERATOR_LEN": "an iterator as an argument cannot be looked at twice",
}
_OPAQUE = {"FAKE_SCRIPT_TYPE_MATCH", "OPAQUE_OBJ_GUARD_FN_MATCH"}
#: Guard kinds that imply the exact type as well.
_TYPED = {"SEQUENCE_LENGTH", "DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK"}
_SPECIAL = {"ID_MATCH", "DUPLICATE_INPUT"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_AUTOCAST = ("device", "fast_dtype", "_enabled", "_cache_enabled")


def known_kinds() -> set[str]:
    """Return all guard kinds that have a translation, a reason to be covered, or a reason to be refused."""
    return {*_COVERED, *_DIRECT, *_WITH_ARGUMENT, *_REFUSED, *_SPECIAL}


def tensor_sources(guards: Any) -> list[Any]:
    """Return the sources of all tensors that Dynamo guards."""
    sources = [guard.originating_source for guard in guards if guard.inner_create_fn().__name__ == "TENSOR_MATCH"]
    return sorted(sources, key=lambda source: source.name)


class GuardTranslator:
    """Turns the guards of one capture into checks that hold now."""

    def __init__(self, paths: Paths) -> None:
        self._method, self._paths, self._names = paths.method, paths, paths.names

    def objects(self, guards: Any, accesses: Iterable[Access]) -> list[Any] | None:
        """Return all objects on the paths of guards, also of those that need no check, and on further paths.

        None if a guard is about something without a path.
        """
        for guard in guards:
            source = guard.originating_source
            if guard.inner_create_fn().__name__ in _WITHOUT_OBJECT or is_of_namedtuple(source, self._names):
                continue
            if self._is_key_position(source):
                source = source.base
            try:
                self._paths.value(self._paths.of(source))
            except UncacheableGuard:
                return None
        for access in accesses:
            self._paths.value(access)
        return self._paths.walker.objects

    def _is_key_position(self, source: Any) -> bool:
        """Whether a source is the key at a position of a dictionary whose relevant keys are known by themselves."""
        return type(source).__name__ == "ConstDictKeySource" and source.base in self._names.looked_up

    def translate(self, guards: Any) -> list[Check]:
        """Return the checks, in a defined order; `UncacheableGuard` for a guard without a translation."""
        ordered_guards = sorted(guards, key=lambda guard: (guard.name, guard.create_fn_name()))
        checks = [check for guard in ordered_guards for check in self._checks(guard)]
        for source, looked_up in self._names.looked_up.items():
            checks += looked_up.checks(self._paths.of(source))
        translated = told_apart(checks, self._paths.walker)
        failure = first_failure(translated, Walker(self._paths.scope))
        if failure is not None:
            error = UncacheableGuard(self._method, failure.check.kind, failure.check.access.text, str(failure))
            error.has_changed = True
            raise error
        return translated

    def _checks(self, guard: Any) -> list[Check]:
        kind = guard.inner_create_fn().__name__
        if kind in _COVERED:
            return []
        source = guard.originating_source
        if kind in _REFUSED and not (kind in _OPAQUE and self._leads_to_group(source)):
            raise UncacheableGuard(self._method, kind, source.name, _REFUSED[kind])
        if kind not in known_kinds():
            raise UncacheableGuard(self._method, kind, source.name, "a guard kind that gearcache does not know")
        if self._is_key_position(source):
            return []
        if is_of_namedtuple(source, self._names):
            return []
        access = self._paths.of(source)
        try:
            value = self._paths.walker.resolve(access)
            besides = [observe("type", access, value)] if kind in _TYPED else []
            # Dynamo counts keys in the order in which they were added, and goes through them in the present order.
            if (
                (kind == "TYPE_MATCH" or kind in _TYPED)
                and isinstance(value, collections.OrderedDict)
                and len(value) > 1
            ):
                besides.append(observe("positions", access, value))
            if kind == "SEQUENCE_LENGTH" and source in self._names.looked_up:
                return besides
            if kind == "ID_MATCH" and isinstance(value, torch.autocast):  # Dynamo takes these attributes for constants
                return [observe("type", access, value), *_attributes(access, value, _OF_AUTOCAST)]
            if kind == "TYPE_MATCH":
                besides += self._content(access, value)
            return [*besides, self._observe(kind, guard, access, value)]
        except GearcacheError:
            raise
        except NotConstant as error:
            raise UncacheableGuard(self._method, kind, source.name, f"a value of type {error}") from None
        except Exception as error:
            raise_interrupt(error)
            refusal = UncacheableGuard(self._method, kind, source.name, f"{type(error).__name__}: {error}")
            refusal.has_changed = True  # the trace has found it there
            raise refusal from None

    def _content(self, access: Access, value: Any) -> list[Check]:
        """Return the checks of an object of which Dynamo guards the class, and nothing that it reads of it."""
        if isinstance(value, tuple) and (name := _own_access(type(value))):
            cause = f"a tuple whose class has a `{name}` of its own, beside which Dynamo reads the items: pass a tuple"
            raise CaptureError(self._method, f"`{access.text}` is {cause}")
        if isinstance(value, (inspect.Signature, inspect.Parameter)):
            return [observe("constant", access, value)]
        if type(value) is contextlib.nullcontext:
            return _attributes(access, value, ("enter_result",))
        if _is_of_torch_compile(value):
            if any(map(vars(value).get, _HOOKS)):
                cause = "hooks of what `torch.compile` returned; register them with the module that was compiled"
                raise CaptureError(self._method, f"`{access.text}` has {cause}")
            return [Check("empty", access.then("attr", name), True) for name in _HOOKS]
        return []

    def _leads_to_group(self, source: Any) -> bool:
        try:
            value = self._paths.walker.resolve(self._paths.of(source))
        except Exception as error:
            raise_interrupt(error)
            return False
        return _is_group(value)

    def _observe(self, kind: str, guard: Any, access: Access, value: Any) -> Check:
        if kind in _WITH_ARGUMENT:
            argument = _guard_argument(guard)
            if kind == "NOT_PRESENT_IN_GENERIC_DICT":
                access, value = access.then("attr", "__dict__"), value.__dict__
            name = argument if _WITH_ARGUMENT[kind] == "has_attr" else wanted_key(argument)
            check_kind = _WITH_ARGUMENT[kind]
            if check_kind == "has_attr" and not hasattr(value, argument):
                check_kind = "no_attr"
            return observe(check_kind, access, value, name)
        if kind in _OPAQUE or (kind == "ID_MATCH" and _is_group(value)):
            return observe("process_group", access, value)
        if kind in ("EMPTY_NN_MODULE_HOOKS_DICT", "NOT_NONE_MATCH"):  # what is there now may be another object
            return Check(_DIRECT[kind], access, True)
        if kind == "DUPLICATE_INPUT":
            return Check("same", access, self._paths.of(_guard_argument(guard)).to_plain())
        if kind == "ID_MATCH":
            return _identity(access, value)
        if kind in ("DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK"):
            try:
                return observe("keys", access, value)
            except NotConstant:
                return observe("length", access, value)
        return observe(_DIRECT[kind], access, value)


def _own_access(cls: type) -> str | None:
    """Return the method by which a class of tuples gives its items, or their number, otherwise than a tuple does."""
    names = ("__getitem__", "__len__")
    return next((name for name in names if getattr(cls, name) is not getattr(tuple, name)), None)


def _is_of_torch_compile(value: Any) -> bool:
    """Return whether a value is what `torch.compile` makes of a module, in whose place a trace sees the module."""
    return type(value).__name__ == "OptimizedModule" and isinstance(value, torch.nn.Module)


def _is_group(value: Any) -> bool:
    return torch.distributed.is_available() and isinstance(value, torch.distributed.ProcessGroup)


def _guard_argument(guard: Any) -> Any:
    """Return the argument of the guard's partial besides the guard (an attribute name, a key, a source)."""
    create = guard.create_fn
    if not isinstance(create, functools.partial):
        raise NotConstant("a guard without its argument")
    values = [*create.args, *create.keywords.values()]
    if len(values) != 1:
        raise NotConstant(f"a guard with {len(values)} arguments")
    return values[0]


def _identity(access: Access, value: Any) -> Check:
    """Return the check for the same object in another process: constants by value, named objects by name and code."""
    if isinstance(value, types.FunctionType) or inspect.ismethod(value):
        return observe("function", access, value)
    if inspect.isclass(value) or inspect.ismodule(value) or inspect.isbuiltin(value):
        return observe("name", access, value)
    try:
        return observe("constant", access, value)
    except NotConstant:
        if inspect.isroutine(value) or (type(value).__module__.startswith("torch") and hasattr(value, "__qualname__")):
            return observe("name", access, value)
        raise


def _attributes(access: Access, value: Any, names: Iterable[str]) -> list[Check]:
    return [observe("constant", access.then("attr", name), getattr(value, name)) for name in names]
