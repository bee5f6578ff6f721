"""Constants that a trace may bake in, as plain data that can be compared without Dynamo.

`to_plain` turns a value into tagged msgpack-able data; two values are the same constant when their plain data
are equal, types included (`1`, `True` and `1.0` differ; `nan` equals `nan`).
"""

from __future__ import annotations

import enum
import inspect
import math
import types
from typing import Any

import torch

from gearcache.guards.evidence.code import code_digest, function_plain
from gearcache.guards.evidence.names import name_of
from gearcache.guards.keys import NotKey, asked


class NotConstant(Exception):
    """A value that has no plain form; carries the type's name."""


_ATOMS = (torch.dtype, torch.layout, torch.memory_format, torch.device)


def to_plain(value: Any) -> Any:
    """Return tagged plain data for a constant; `NotConstant` for anything else."""
    kind = type(value)
    if kind is bool:
        return ["bool", value]  # tagged: plain `True` equals `1`
    if value is None or kind is int or kind is str or kind is bytes:
        if kind is int and not -(1 << 63) <= value < (1 << 64):
            return ["bigint", str(value)]
        return value
    if kind is float:
        return ["float", value.hex() if not math.isnan(value) else "nan"]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if isinstance(value, _ATOMS) or _is_enum_of_c(kind):
        return ["torch", str(value)]
    if isinstance(value, (torch.finfo, torch.iinfo)):
        return ["torch", f"{kind.__name__} of {value.dtype}"]
    if kind is torch.Size:
        return ["size", [to_plain(item) for item in value]]
    if kind in (tuple, list):
        return [kind.__name__, [to_plain(item) for item in value]]
    if kind in (set, frozenset):
        return [kind.__name__, sorted((to_plain(item) for item in value), key=repr)]
    if kind is dict:
        return ["dict", [[to_plain(key), to_plain(item)] for key, item in value.items()]]
    if kind is slice:
        return ["slice", [to_plain(item) for item in (value.start, value.stop, value.step)]]
    if kind is types.CodeType:
        return [
            "code",
            value.co_qualname if hasattr(value, "co_qualname") else value.co_name,
            code_digest(value),
        ]
    if kind is range:
        return ["range", [value.start, value.stop, value.step]]
    if isinstance(value, enum.Enum):
        return ["enum", name_of(kind), value.name, _enum_value(value)]
    if value is Ellipsis or value is NotImplemented:
        return ["singleton", repr(value)]
    if kind is types.FunctionType:
        return ["function", *function_plain(value)]
    if isinstance(value, (type, types.BuiltinFunctionType, types.ModuleType)):
        return ["object", name_of(value)]
    if kind is inspect.Signature:
        return ["signature", [_parameter(parameter) for parameter in value.parameters.values()]]
    if kind is inspect.Parameter:
        return ["parameter", _parameter(value)]
    if kind.__module__ == "typing" or kind is types.GenericAlias or kind is types.UnionType:
        return ["typing", repr(value)]
    if isinstance(value, (int, str, float)) and type(value).__repr__ is not object.__repr__:
        # A subclass such as `numpy.float64` or a `str` enum mixin: keep its base value and its own type.
        base = int(value) if isinstance(value, int) else str(value) if isinstance(value, str) else float(value)
        return ["subclass", name_of(kind), to_plain(base)]
    raise NotConstant(name_of(kind))


def _is_enum_of_c(kind: type) -> bool:
    """Return whether a class is an enum of torch's C++, such as that of the kernels of attention."""
    return kind.__module__.startswith("torch.") and "__members__" in vars(kind)


def _parameter(parameter: inspect.Parameter) -> list[Any]:
    """Return name, kind and default of a parameter, and its annotation; of a value without a plain form the class."""
    parts: list[Any] = [parameter.name, parameter.kind.name]
    for value in (parameter.default, parameter.annotation):
        try:
            parts.append(to_plain(value))
        except NotConstant as error:
            parts.append(["other", str(error)])
    return parts


def wanted_key(key: Any) -> Any:
    """Return the `expected` data of a check for a key in a container; `NotConstant` for a key without a plain form.

    A class or an enum member equals only itself; other keys are looked up as Python does.
    """
    try:
        return asked(key)
    except NotKey as error:
        if isinstance(key, float):
            raise NotConstant(str(error)) from None
        return to_plain(key)


def number_type_of(plain: Any) -> type | None:
    """Return `int` or `float` for the constant of some `to_plain` data; None for any other."""
    if type(plain) is int:
        return int
    return float if isinstance(plain, list) and plain[:1] == ["float"] else None


_BRACKETS = {
    "tuple": ("(", ")"),
    "list": ("[", "]"),
    "set": ("{", "}"),
    "frozenset": ("frozenset({", "})"),
    "size": ("torch.Size([", "])"),
}


def readable(plain: Any) -> str:
    """Return the constant of some `to_plain` data as Python text; data of another form unchanged."""
    match plain:
        case ["bool", bool(value)]:
            return repr(value)
        case ["bigint" | "torch" | "singleton" | "typing", str(text)]:
            return text  # a device as `cpu`
        case ["float", str(text)]:
            return repr(float.fromhex(text))
        case ["tuple" | "list" | "set" | "frozenset" | "size" as kind, list(items)]:
            items_text = ", ".join(map(readable, items)) + ("," if kind == "tuple" and len(items) == 1 else "")
            begin, end = _BRACKETS[kind]
            return f"{begin}{items_text}{end}"
        case ["dict", list(pairs)] if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return "{" + ", ".join(f"{readable(key)}: {readable(value)}" for key, value in pairs) + "}"
        case ["enum", str(name), str(member), None]:
            return f"{name}.{member}"
        case ["enum", str(name), str(member), value]:  # as Python writes it
            return f"<{name}.{member}: {readable(value)}>"
        case ["subclass", str(name), base]:
            return f"{name}({readable(base)})"
        case ["range", [start, stop, step]]:
            return f"range({start}, {stop}, {step})"
        case ["object" | "function", str(name), *_]:
            return f"`{name}`"
        case ["other", str(name)]:  # has no plain form, see `guards.evidence.kinds`
            return f"an object of `{name}`"
    return repr(plain)


def _enum_value(member: enum.Enum) -> Any:
    """Return a member's value where it has a plain form: in another process the name may have another value."""
    try:
        return to_plain(member.value)
    except NotConstant:
        return None


def is_identity_constant(value: Any) -> bool:
    """Whether equal plain data means the same object in every process (so `is` may be used)."""
    return value is None or isinstance(value, (bool, torch.dtype, torch.layout, torch.memory_format, enum.Enum, type))
