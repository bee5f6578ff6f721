"""Code of Python: whose it is, and digests of what a function does, independent of its place.

Digests leave out file name, line numbers and tables derived from them, so that a comment or an edit elsewhere in a file
changes nothing. Names, constants, bytecode and nested code objects are included.
"""

from __future__ import annotations

import functools
import hashlib
import os
import types
from pathlib import Path
from typing import Any

import torch

from gearcache.guards.evidence.names import name_of

#: Constants of code whose `repr` tells their type and value.
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis)})


def code_digest(code: types.CodeType) -> str:
    """Return the sha256 of what `code` does. Valid for one Python version (which is part of the key)."""
    return hashlib.sha256(repr(_code_plain(code)).encode("utf-8", "surrogatepass")).hexdigest()


def _code_plain(code: types.CodeType) -> list[Any]:
    return [
        code.co_name,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        # The bytecode without the interpreter's inline caches and specialisations.
        code.co_code,
        getattr(code, "co_exceptiontable", b""),
        [_constant_plain(constant) for constant in code.co_consts],
    ]


def _constant_plain(value: Any) -> Any:
    """Return what `repr` writes without an address and in one order; lists stand for what is not plain itself."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is types.CodeType:
        return _code_plain(value)
    if kind is tuple:
        return tuple([_constant_plain(item) for item in value])
    if kind is frozenset:
        return ["frozenset", sorted(repr(_constant_plain(item)) for item in value)]
    return ["object", name_of(value)]  # only hand-made code has such constants, of which the class alone is stable


def code_objects(code: types.CodeType) -> list[types.CodeType]:
    """Return `code` and all code objects nested in it."""
    codes = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            codes.extend(code_objects(constant))
    return codes


def function_plain(function: Any) -> list[str]:
    """Return name and code of a function (or of the function that a method, class method or static method wraps).

    The code is a digest; for torch and the standard library, whose versions are in the key, it is the file and the
    line.
    """
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, types.CodeType):
        return [name_of(inner), ""]
    place = versioned_place(code.co_filename)
    return [name_of(inner), f"{place}:{code.co_firstlineno}" if place is not None else code_digest(code)]


def method_component(function: types.FunctionType) -> dict[str, Any]:
    """Return module, name and code of a method, through all decorators that keep `__wrapped__`."""
    codes = []
    inner: Any = function
    while inner is not None:
        code = getattr(inner, "__code__", None)
        codes.append(code_digest(code) if isinstance(code, types.CodeType) else name_of(inner))
        inner = getattr(inner, "__wrapped__", None)
    return {"name": name_of(function), "code": codes}


def is_versioned(code: types.CodeType | None) -> bool:
    """Whether code belongs to torch or the standard library, whose versions are in the key."""
    return code is not None and versioned_place(code.co_filename) is not None


def is_users(function: Any, seen: frozenset[int] = frozenset()) -> bool:
    """Whether a function is the user's, or a wrapper from torch or the standard library around one."""
    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return False
    return not is_versioned(function.__code__) or any(
        is_users(item, seen | {id(function)}) for item in inner_values(function)
    )


def closed_over(function: types.FunctionType) -> list[Any]:
    """Return the closed-over values of a function that exist already."""
    return [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]


def inner_values(function: types.FunctionType) -> list[Any]:
    """Return the closed-over values of a function and the function that it wraps."""
    values = (*closed_over(function), getattr(function, "__wrapped__", None))
    return [item for item in values if item is not function]


def is_library_file(file: Any) -> bool:
    """Return whether the `__file__` of a module, which may be any value, belongs to torch or the standard library."""
    return isinstance(file, str) and versioned_place(file) is not None


@functools.lru_cache(maxsize=4096)
def versioned_place(filename: str) -> str | None:
    """Return the name of a file relative to torch or the standard library, or None for any other file."""
    if filename.startswith("<frozen "):
        return filename
    path = os.path.realpath(filename)
    torch_folder, library = _versioned_folders()
    if path.startswith(torch_folder):
        return "torch/" + path[len(torch_folder) :]
    if path.startswith(library) and "site-packages" not in path and "dist-packages" not in path:
        return "python/" + path[len(library) :]
    return None


@functools.cache
def _versioned_folders() -> tuple[str, str]:
    # The folder of `os`, not `sysconfig`, which reads the interpreter's Makefile variables, in 1.5 ms. Both files may
    # be links, as some installers make them, so they are resolved as the compared files are.
    torch_folder, library = (str(Path(os.path.realpath(file)).parent) for file in (torch.__file__, os.__file__))
    return torch_folder + os.sep, library + os.sep
