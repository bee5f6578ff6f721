"""Digests of traced functions that no access path reaches, to detect edits.

Most traced functions are compared in memory (`function` checks). For the others the files count. A file whose sha256 is
unchanged counts as unchanged. In a changed file only the traced functions count: the new text is compiled and their
code digests are compared, so an edit elsewhere in the file stays a hit. torch and the standard library are left out;
their versions are in the key.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.util
import os
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gearcache.guards.evidence.code import code_digest, code_objects, is_versioned
from gearcache.guards.evidence.names import name_of
from gearcache.guards.evidence.reason import Reason
from gearcache.interrupts import raise_interrupt

Plain = dict[str, Any]
#: The attribute in which `functools.wraps` stores the inner function, and how many levels are searched.
_WRAPPED, _MOST_DECORATORS = ".__wrapped__", 4


class UnnamedCode(Exception):
    """Traced code without a file whose function cannot be found by name."""


def record_sources(codes: Iterable[types.CodeType], operators: Iterable[str] = ()) -> Plain:
    """Return files (module, sha256) with the digests of their traced code objects, functions without a file, and the
    baked-in parts of `operators` outside torch.
    """
    from gearcache.guards.evidence.operators import record_operators

    # By identity: equal code compares equal, also from another file, or another class's `__init__`.
    user_codes = [code for code in {id(code): code for code in codes}.values() if not is_versioned(code)]
    paths = {code.co_filename: os.path.realpath(code.co_filename) for code in user_codes}
    modules = _modules_by_file(paths) if paths else {}
    files: dict[str, set[tuple[str, str]]] = defaultdict(set)
    fileless_codes: list[types.CodeType] = []
    for code in user_codes:
        path = paths[code.co_filename]
        if path in modules and Path(path).exists():
            files[path].add((_qualname(code), code_digest(code)))
        else:
            fileless_codes.append(code)
    return {
        "files": [
            [modules[path], _digest_if_current(path, digests), [list(item) for item in sorted(digests)]]
            for path, digests in sorted(files.items())
        ],
        "functions": _functions(fileless_codes),
        "operators": record_operators(operators),
    }


def _modules_by_file(paths: dict[str, str]) -> dict[str, str]:
    """Return real path -> module of imported files; of all of them if the modules that have the base names of `paths`
    do not have all real paths: there are thousands, and each real path costs many system calls.
    """
    names_by_file = {
        file: name
        for name, module in list(sys.modules.items())
        if isinstance(file := getattr(module, "__file__", None), str)
    }
    base_names = {_base_name(file) for file in paths}
    modules = {os.path.realpath(file): name for file, name in names_by_file.items() if _base_name(file) in base_names}
    if all(path in modules or not Path(path).exists() for path in paths.values()):
        return modules
    return {os.path.realpath(file): name for file, name in names_by_file.items()}


def _base_name(path: str) -> str:
    return path.rpartition(os.sep)[2]


def _digest_if_current(path: str, codes: set[tuple[str, str]]) -> str:
    """Return the file's digest, or "" when it no longer holds the traced code (it was edited meanwhile).

    Without a digest the code itself is compared at every load, so an edit during a compile cannot poison an entry.
    """
    digest = _file_digest(path)
    current_codes = _codes_in(path, digest)
    return digest if all(code in current_codes.get(name, ()) for name, code in codes) else ""


def changed_source(plain: Plain) -> Reason | None:
    """Return the edit since the sources were recorded, with file and line of the function, or None."""
    for module, digest, codes in plain["files"]:
        path = _module_file(module)
        if path is None:
            return Reason("source", f"module `{module}`, which the trace went through, cannot be found", module)
        current_digest = _file_digest(path)
        if current_digest == digest:
            continue
        current_codes = _codes_in(path, current_digest)
        for qualname, code in codes:
            if code not in current_codes.get(qualname, ()):
                state = "was changed" if qualname in current_codes else "is gone"
                line = min(current_codes.get(qualname, {"": 0}).values())
                text = f"`{qualname}` in `{path}`{f', line {line},' if line else ''} {state}"
                current_text = ", ".join(sorted(digest[:12] for digest in current_codes.get(qualname, ())))
                return Reason("source", text, qualname, code[:12], current_text or "nothing", path, line)
    for name, digest in plain["functions"]:
        function = _function_digest(name)
        if function != digest:
            state = "was changed" if function else "is gone"
            return Reason("source", f"function `{name}` {state}", name, digest[:12], (function or "nothing")[:12])
    if not plain.get("operators"):
        return None
    from gearcache.guards.evidence.operators import changed_operator

    return changed_operator(plain["operators"])


def _qualname(code: types.CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def _module_file(name: str) -> str | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return file
    try:
        specification = importlib.util.find_spec(name)
    except Exception as error:  # of a parent package that is imported
        raise_interrupt(error)
        return None
    return specification.origin if specification is not None else None


def _file_digest(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise_interrupt(error)
        return ""


@functools.lru_cache(maxsize=256)
def _codes_in(path: str, digest: str) -> dict[str, dict[str, int]]:
    """Return qualname -> {code digest: line} of everything a source file defines; `digest` is the file's."""
    codes: dict[str, dict[str, int]] = defaultdict(dict)
    try:
        with Path(path).open("rb") as file:
            module = compile(file.read(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        raise_interrupt(error)
        return codes
    for code in code_objects(module):
        codes[_qualname(code)][code_digest(code)] = code.co_firstlineno
    return codes


def _functions(codes: list[types.CodeType]) -> list[list[str]]:
    """Return name and digest of the functions that have code without a file (made by `exec`, as dataclasses do)."""
    if not codes:
        return []
    code_by_id = {id(code): code for code in codes}
    owners = {
        id(value.__code__): value
        for value in gc.get_referrers(*codes)
        if type(value) is types.FunctionType and id(value.__code__) in code_by_id  # weak proxies break isinstance
    }
    if len(owners) < len(code_by_id):  # `gc.freeze` hides earlier objects
        owners = {
            id(value.__code__): value for value in _functions_of_classes() if id(value.__code__) in code_by_id
        } | owners
    named_digests = []
    for identity, code in code_by_id.items():
        owner, digest = owners.get(identity), code_digest(code)
        name = name_of(owner) if owner is not None else ""
        # A decorated function is inside the one that has its name now.
        names = [name + _WRAPPED * depth for depth in range(_MOST_DECORATORS + 1)] if name else []
        matching_name = next((candidate for candidate in names if _function_digest(candidate) == digest), None)
        if matching_name is None:
            raise UnnamedCode(f"`{_qualname(code)}` from `{code.co_filename}`")
        named_digests.append([matching_name, digest])
    return sorted(named_digests)


def _functions_of_classes() -> Iterator[types.FunctionType]:
    """Yield the functions of all classes that modules name, including functions inside decorators."""
    for name, module in list(sys.modules.items()):
        for cls in list(getattr(module, "__dict__", {}).values()):
            # `isinstance` reads `__class__`, which in some modules triggers a deprecation warning.
            if not issubclass(type(cls), type) or cls.__dict__.get("__module__") != name:
                continue
            for value in list(cls.__dict__.values()):
                for _ in range(_MOST_DECORATORS + 1):
                    if type(value) is not types.FunctionType:
                        break
                    yield value
                    value = value.__dict__.get("__wrapped__")


def _function_digest(name: str) -> str | None:
    module, _, qualname = name.partition(":")
    value: Any = sys.modules.get(module)
    for part in qualname.split("."):
        if part == "<locals>" or value is None:
            return None
        value = value.__dict__.get(part) if isinstance(value, type) else getattr(value, part, None)
    value = getattr(value, "__func__", value)
    code = getattr(value, "__code__", None)
    return code_digest(code) if isinstance(code, types.CodeType) else None
