"""The frame of a method: Dynamo's bytecode that unpacks arguments, calls the graph and rebuilds the result.

It is stored field by field, never as a pickle or marshal, and made into a function only from a manifest whose digest
was verified. It is bytecode of one Python version (which is part of the key).
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from opcode import opmap
from typing import Any

import torch

from gearcache.guards.evidence.names import name_of

_NUMBERS = (
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_nlocals",
    "co_stacksize",
    "co_flags",
    "co_firstlineno",
)
_TEXTS = ("co_filename", "co_name", "co_qualname")
_TABLES = ("co_code", "co_linetable", "co_exceptiontable")
_NAMES = ("co_names", "co_varnames", "co_freevars", "co_cellvars")
_serial = itertools.count()
_WRITES_GLOBAL = {opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL")}


class UnstorableConstant(Exception):
    """A constant in the frame that has no plain form; carries it in words."""


def encode_code(code: types.CodeType) -> dict[str, Any]:
    """Return a code object as plain data."""
    plain: dict[str, Any] = {"consts": [_encode_constant(constant) for constant in code.co_consts]}
    for field in (*_NUMBERS, *_TEXTS, *_TABLES):
        if hasattr(code, field):
            plain[field] = getattr(code, field)
    if not hasattr(code, "co_linetable"):
        plain["co_lnotab"] = code.co_lnotab
    for field in _NAMES:
        plain[field] = list(getattr(code, field))
    return plain


def decode_code(plain: dict[str, Any], rename: dict[str, str]) -> types.CodeType:
    """Inverse of `encode_code`; `rename` maps global names to unique ones."""
    changes: dict[str, Any] = {field: plain[field] for field in (*_NUMBERS, *_TEXTS, *_TABLES) if field in plain}
    for field in _NAMES:
        changes[field] = tuple(plain[field])
    changes["co_names"] = tuple(rename.get(name, name) for name in plain["co_names"])
    changes["co_consts"] = tuple(_decode_constant(constant, rename) for constant in plain["consts"])
    return _EMPTY.replace(**changes)


def _empty() -> None:
    return None


_EMPTY = _empty.__code__


def _encode_constant(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, str, bytes):
        return value
    if kind is int:
        return value if -(1 << 63) <= value < (1 << 63) else {"int": str(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is tuple:
        return {"tuple": [_encode_constant(item) for item in value]}
    if kind is frozenset:
        return {"frozenset": [_encode_constant(item) for item in sorted(value, key=repr)]}
    if kind is slice:
        return {"slice": [_encode_constant(item) for item in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if kind is types.CodeType:
        return {"code": encode_code(value)}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    name = getattr(value, "__name__", "")
    if kind is type and getattr(torch.return_types, name, None) is value:
        return {"return_type": name}
    if kind is type and getattr(builtins, name, None) is value:
        return {"builtin": name}
    if (cls := named_tuple_of(value)) is not None:
        return {"make": name_of(cls)}
    if isinstance(value, type):
        which = "as for a function of `functools.singledispatch`: call the function that it picks"
        raise UnstorableConstant(f"the class `{value.__module__}.{name}`, {which}")
    raise UnstorableConstant(f"a constant of type {kind.__module__}.{kind.__qualname__}")


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float.fromhex,
    "complex": lambda parts: complex(*(float.fromhex(part) for part in parts)),
    "ellipsis": lambda _: Ellipsis,
    "torch": lambda name: getattr(torch, name),
    "device": torch.device,
    "size": torch.Size,
    "make": lambda name: resolve_reference("object", name)._make,
    "builtin": lambda name: getattr(builtins, name),
    "return_type": lambda name: getattr(torch.return_types, name),
}


def _decode_constant(plain: Any, rename: dict[str, str]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, value),) = plain.items()
    if kind == "code":
        return decode_code(value, rename)
    if kind in ("tuple", "frozenset", "slice"):
        items = [_decode_constant(item, rename) for item in value]
        return slice(*items) if kind == "slice" else tuple(items) if kind == "tuple" else frozenset(items)
    return _DECODERS[kind](value)


def named_tuple_of(constant: Any) -> type | None:
    """Return the class whose `_make` method this constant is, where another process can find the class by its name."""
    cls = getattr(constant, "__self__", None)
    if type(constant) is not types.MethodType or not isinstance(cls, type) or not issubclass(cls, tuple):
        return None
    try:
        is_found = resolve_reference("object", name_of(cls)) is cls and cls._make == constant
    except (AttributeError, ImportError):
        return None
    return cls if is_found else None


def resolve_reference(kind: str, value: str) -> Any:
    """Return the object that a global name of the frame stands for.

    `module`: an imported module (Dynamo's own modules are replaced by `frame_helpers`); `builtins`: the builtins
    dictionary; `object`: `module:qualname`.
    """
    if kind == "builtins":
        return builtins.__dict__
    if kind == "module":
        if value.startswith("torch._dynamo"):
            from gearcache.guards.dispatch import frame_helpers

            return frame_helpers
        return sys.modules.get(value) or importlib.import_module(value)
    if kind == "object":
        module, _, qualname = value.partition(":")
        target: Any = sys.modules.get(module) or importlib.import_module(module)
        for name in qualname.split("."):
            target = getattr(target, name)
        return target
    raise ValueError(f"unknown reference kind {kind!r}")


def bind_frame(
    plain: dict[str, Any],
    references: dict[str, Any],
    method: types.FunctionType,
) -> types.FunctionType:
    """Return the frame as a function with the method's closure and defaults.

    A frame that reads or writes globals of the user runs in the *method's own* globals. While the function lives, these
    globals contain the helpers, under names that are not identifiers and so never clash with a user's global. The
    globals hold helpers only weakly, as they lead to the method's instance.
    """
    serial = next(_serial)
    rename = {name: f"_gearcache {serial} {index}" for index, name in enumerate(references)}
    helpers = {rename[name]: value for name, value in references.items()}
    code = decode_code(plain, rename)
    namespace: dict[str, Any] = {"__builtins__": builtins, **helpers}
    if shares := _uses_globals(code, helpers, method.__globals__):
        namespace = method.__globals__
        namespace.update((name, _weakly(value)) for name, value in helpers.items())
    function = types.FunctionType(code, namespace, method.__name__, method.__defaults__, method.__closure__)
    function.__kwdefaults__ = method.__kwdefaults__
    if shares:
        vars(function)["helpers"] = helpers
        weakref.finalize(function, _remove, namespace, list(helpers))
    return function


def _uses_globals(code: types.CodeType, helpers: Mapping[str, Any], namespace: Mapping[str, Any]) -> bool:
    """Return whether a frame uses a global that is not a helper; functions made in the frame may always do so."""
    if any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        return True
    argument, shift = 0, 1 if sys.version_info >= (3, 11) else 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = argument << 8 | low
        if operation == opmap["EXTENDED_ARG"]:
            continue
        if operation in _WRITES_GLOBAL:
            return True
        if operation == opmap["LOAD_GLOBAL"]:
            name = code.co_names[argument >> shift]
            if name not in helpers and name in namespace:
                return True
        argument = 0
    return False


def _weakly(value: Any) -> Any:
    """Return a function that calls another one without keeping it alive; anything else unchanged."""
    if not isinstance(value, (types.FunctionType, types.MethodType)):
        return value
    reference = weakref.ref(value)

    def call(*arguments: Any) -> Any:
        return reference()(*arguments)  # type: ignore[misc]

    return call


def _remove(namespace: dict[str, Any], names: list[str]) -> None:
    for name in names:
        namespace.pop(name, None)
