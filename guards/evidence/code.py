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


def code_digest(code: types.CodeType) -> str:
    """Return the sha256 of what `code` does. Valid for one Python version (which is part of the key)."""
    parts: list[bytes] = []
    _collect_code(parts, code)
    lengths = b"".join(len(part).to_bytes(8, "little") for part in parts)
    return hashlib.sha256(len(parts).to_bytes(8, "little") + lengths + b"".join(parts)).hexdigest()


def _collect_code(parts: list[bytes], code: types.CodeType) -> None:
    numbers = (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        len(code.co_consts),
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    parts.append(f"{code.co_name} {numbers} {names}".encode(errors="surrogatepass"))
    # `co_code` is the bytecode without the interpreter's inline caches and specialisations.
    parts.append(code.co_code)
    parts.append(getattr(code, "co_exceptiontable", b""))
    for constant in code.co_consts:
        _collect_constant(parts, constant)


def _collect_constant(parts: list[bytes], value: Any) -> None:
    if isinstance(value, types.CodeType):
        parts.append(b"code")
        _collect_code(parts, value)
    elif isinstance(value, (tuple, frozenset)):
        items = value if isinstance(value, tuple) else sorted(value, key=repr)
        parts.append(f"{type(value).__name__}{len(value)}".encode())
        for item in items:
            _collect_constant(parts, item)
    elif isinstance(value, (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))):
        parts.append(f"{type(value).__name__}:{value!r}".encode(errors="surrogatepass"))
    else:
        # Only hand-made code has other constants; only the name of their class is stable.
        parts.append(f"object:{name_of(value)}".encode())


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
