"""The names of torch in gearcache's own source, looked up before a release that nobody tested compiles anything.

A name that is gone would else be an `AttributeError` in the middle of a trace, or of what watches one.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gearcache.errors import MissingTorchNames
from gearcache.torch_release import TESTED_TEXT, is_tested

_PACKAGE = Path(__file__).parent
#: Names that are there with a device or its library only.
_OPTIONAL = ("torch.npu", "torch.cuda", "torch.distributed")


def check_names(version: str) -> None:
    """Raise `MissingTorchNames` where torch is of another release than those tested and lacks what gearcache uses."""
    if not is_tested(version) and (missing := missing_names()):
        raise MissingTorchNames(version, TESTED_TEXT, missing)


@functools.cache
def missing_names() -> tuple[str, ...]:
    """Return the names of torch in gearcache's source that the installed torch does not have. Imports the compilers."""
    used: set[str] = set()
    for folder, _, files in os.walk(_PACKAGE, followlinks=True):
        for file in files:
            if file.endswith(".py"):
                used |= names_in(ast.parse(Path(folder, file).read_bytes()))
    optional = tuple(f"{name}." for name in _OPTIONAL)
    return tuple(sorted(name for name in used if not name.startswith(optional) and not _exists(name)))


def names_in(tree: ast.Module) -> set[str]:
    """Return the dotted names of torch that a module imports, or reads as attributes of what it imported."""
    found: set[str] = set()
    of_module = _bound(node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    for part in tree.body:
        own = _bound(ast.walk(part)) if isinstance(part, (ast.FunctionDef, ast.ClassDef)) else {}
        hidden = _set_otherwise(part)
        bound = {name: value for name, value in {**of_module, **own}.items() if name not in hidden}
        for node in ast.walk(part):
            if isinstance(node, ast.ImportFrom) and _is_torch(node.module or ""):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names if _is_torch(alias.name)}
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found |= {name} if (name := _dotted(node, bound)) else set()
    return found


def _bound(nodes: Iterator[ast.AST]) -> dict[str, str]:
    """Return variable -> name of torch, for imports and for `variable = name.of.torch`."""
    bound: dict[str, str] = {}
    assigned: list[tuple[ast.expr, ast.expr]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            named = [alias for alias in node.names if _is_torch(alias.name)]
            bound |= {alias.asname or "torch": alias.name if alias.asname else "torch" for alias in named}
        elif isinstance(node, ast.ImportFrom) and _is_torch(node.module or ""):
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            assigned.append((node.target, node.value))
    for target, value in assigned:
        if isinstance(target, ast.Name) and (name := _dotted(value, bound)):
            bound[target.id] = name
    return bound


def _set_otherwise(part: ast.stmt) -> set[str]:
    """Return the variables of a function that may hold something else too: parameters, and what is assigned anew."""
    stores = Counter(node.id for node in ast.walk(part) if isinstance(node, ast.Name) and not _reads(node))
    annotated = {node.target.id for node in ast.walk(part) if _annotates(node)}  # type: ignore[attr-defined]
    parameters = {node.arg for node in ast.walk(part) if isinstance(node, ast.arg)}
    return parameters | {name for name, count in stores.items() if count > 1 or name not in annotated}


def _annotates(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _reads(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _dotted(node: ast.expr, bound: dict[str, str]) -> str:
    """Return the name of torch that a chain of attributes reads, or an empty text."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, "")
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value, bound)):
        return f"{base}.{node.attr}"
    return ""


def _is_torch(module: str) -> bool:
    return module == "torch" or module.startswith("torch.")


def _exists(name: str) -> bool:
    parts = name.split(".")
    found: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 1):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(parts[: index + 1]))
            except ImportError:
                return False
    return True
