"""Digests of Python code objects: what a function does, without where it stands.

File name, line numbers and tables derived from them are left out, so that a comment or an edit elsewhere in a
file changes nothing; names, constants, bytecode and nested code objects are in.
"""

from __future__ import annotations

import hashlib
import types
from typing import Any

from gearcache.guards.names import name_of


def code_digest(code: types.CodeType) -> str:
    """Return the sha256 of what `code` does. Valid for one Python version (which is part of the key)."""
    digest = hashlib.sha256()
    _feed_code(digest, code)
    return digest.hexdigest()


def _feed(digest: Any, data: bytes) -> None:
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def _feed_code(digest: Any, code: types.CodeType) -> None:
    _feed(digest, code.co_name.encode())
    for number in (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
    ):
        _feed(digest, str(number).encode())
    # `co_code` is the bytecode without the interpreter's inline caches and specialisations.
    _feed(digest, code.co_code)
    _feed(digest, getattr(code, "co_exceptiontable", b""))
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        _feed(digest, "\0".join(names).encode())
    _feed(digest, str(len(code.co_consts)).encode())
    for constant in code.co_consts:
        _feed_constant(digest, constant)


def _feed_constant(digest: Any, value: Any) -> None:
    if isinstance(value, types.CodeType):
        _feed(digest, b"code")
        _feed_code(digest, value)
    elif isinstance(value, (tuple, frozenset)):
        items = value if isinstance(value, tuple) else sorted(value, key=repr)
        _feed(digest, f"{type(value).__name__}{len(value)}".encode())
        for item in items:
            _feed_constant(digest, item)
    elif isinstance(value, (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))):
        _feed(digest, f"{type(value).__name__}:{value!r}".encode())
    else:
        # Only code made by hand holds other constants; its name is all that is stable.
        _feed(digest, f"object:{name_of(value)}".encode())


def code_objects(code: types.CodeType) -> list[types.CodeType]:
    """Return `code` and all code objects nested in it."""
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.extend(code_objects(constant))
    return found


def function_plain(function: Any) -> list[str]:
    """Return name and code digest of a function (or of what a partial or method wraps)."""
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    return [name_of(inner), code_digest(code) if isinstance(code, types.CodeType) else ""]
