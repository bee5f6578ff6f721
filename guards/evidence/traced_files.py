"""Digests of the source files of traced functions that no access path reaches, to detect edits.

Most traced functions are compared in memory (`function` checks, `classes`). For the others, their file counts as a
whole. torch and the standard library are left out; their versions are in the key.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gearcache.guards.evidence.code import code_digest, code_objects, is_versioned
from gearcache.guards.evidence.reason import Reason
from gearcache.interrupts import raise_interrupt

Plain = dict[str, Any]


class UnnamedCode(Exception):
    """Traced code that no module's file holds: `exec` made it, or the file was edited since it was imported."""


def record_sources(codes: Iterable[types.CodeType], operators: Iterable[str] = ()) -> Plain:
    """Return module and sha256 of the files that hold some code, and the parts of `operators` outside torch."""
    from gearcache.guards.evidence.operators import record_operators

    files: dict[str, list[types.CodeType]] = {}
    for code in codes:
        if not is_versioned(code):
            files.setdefault(os.path.realpath(code.co_filename), []).append(code)
    modules = _modules_by_file() if files else {}
    sources = []
    for path, own in sorted(files.items()):
        digest, present = _read(path)
        if path not in modules or not {code_digest(code) for code in own} <= present:
            raise UnnamedCode(f"`{own[0].co_name}` from `{own[0].co_filename}`")
        sources.append([modules[path], digest])
    return {"files": sources, "operators": record_operators(operators)}


def changed_source(plain: Plain) -> Reason | None:
    """Return the edit since the sources were recorded, or None."""
    for module, digest in plain["files"]:
        path = _module_file(module)
        if path is None:
            return Reason("source", f"module `{module}`, which the trace went through, cannot be found", module)
        if _digest(path) != digest:
            return Reason("source", f"`{path}`, which holds traced code without a name, was edited", module, file=path)
    if not plain.get("operators"):
        return None
    from gearcache.guards.evidence.operators import changed_operator

    return changed_operator(plain["operators"])


def _modules_by_file() -> dict[str, str]:
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {os.path.realpath(file): name for name, file in files.items() if isinstance(file, str)}


def _module_file(name: str) -> str | None:
    file = getattr(sys.modules.get(name), "__file__", None)
    if isinstance(file, str):
        return file
    try:
        specification = importlib.util.find_spec(name)
    except Exception as error:  # of a parent package that is imported
        raise_interrupt(error)
        return None
    return specification.origin if specification is not None else None


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise_interrupt(error)
        return ""


def _read(path: str) -> tuple[str, set[str]]:
    """Return the digest of a source file, and those of all code that it holds now."""
    try:
        text = Path(path).read_bytes()
        module = compile(text, path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        raise_interrupt(error)
        return "", set()
    return hashlib.sha256(text).hexdigest(), {code_digest(code) for code in code_objects(module)}
