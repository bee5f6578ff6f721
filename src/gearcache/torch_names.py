"""The names of torch in gearcache's own source, looked up before an untested release loads or compiles.

Otherwise a missing name would be an `AttributeError` in the middle of a trace, or in a probe.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from gearcache.errors import MissingTorchNames
from gearcache.ge_cache.private_torch.renamed import name_here
from gearcache.torch_parameters import other_parameters, parameters_of, value_of
from gearcache.torch_release import NEWEST, TESTED_TEXT, is_tested

_PACKAGE = Path(__file__).parent
#: Names that are there with a device or its library only.
_OPTIONAL = ("torch.npu", "torch.cuda", "torch.distributed")
#: Functions that take an owner and names of what it has; those of `Probes` begin with `at`.
_ASKING = (name_here.__name__, "at", "at_import", "at_value", "overriding")
#: What a relaunch that hits imports of gearcache, and uses names of torch.
_OF_HITS = ("guards", "serving", "cache/keys/fingerprint.py", "ge_cache/aten.py", "ge_cache/private_torch/core.py")


def check_names(version: str) -> None:
    """Raise `MissingTorchNames` if torch is an untested release and lacks names that gearcache uses."""
    if not is_tested(version) and (missing := missing_names()):
        raise MissingTorchNames(version, TESTED_TEXT, NEWEST, missing)


def lacking_for_hits() -> MissingTorchNames | None:
    """Return an error for the missing names that a loaded graph needs; None if there are none."""
    if not (missing := missing_for_hits()):
        return None
    return MissingTorchNames(str(importlib.import_module("torch").__version__), TESTED_TEXT, NEWEST, missing)


@functools.cache
def missing_names() -> tuple[str, ...]:
    """Return the names of torch in gearcache's source that the installed torch does not have. Imports the compilers.

    Functions with unrecorded parameters count as missing, and appear with the last recorded ones.
    """
    used = _used(_PACKAGE)
    missing = _lacking(used, _exists)
    existing = sorted(name for name in used if not _is_optional(name) and _exists(name))
    return missing + tuple(filter(None, map(other_parameters, existing)))


def functions() -> dict[str, str]:
    """Return the private functions of torch in gearcache's source, with their parameters in the installed torch."""
    existing = [name for name in _used(_PACKAGE) if "._" in name and not _is_optional(name) and _exists(name)]
    forms = {name: parameters_of(value_of(name)) for name in existing}
    return {name: form for name, form in forms.items() if form is not None}


@functools.cache
def missing_for_hits() -> tuple[str, ...]:
    """Return the missing names that a hit needs. Imports nothing: a hit needs no module that is not imported yet."""
    return _lacking({name for part in _OF_HITS for name in _used(_PACKAGE / part)}, _may_exist)


def _lacking(names: Set[str], exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the missing names, without those below another missing name."""
    missing = [name for name in names if not _is_optional(name) and not exists(name)]
    return tuple(sorted(name for name in missing if not name.startswith(tuple(f"{other}." for other in missing))))


def _used(place: Path) -> frozenset[str]:
    """Return the names of torch in a file, or in all files of a folder."""
    files = (
        [place]
        if place.suffix
        else [Path(at, file) for at, _, all_ in os.walk(place, followlinks=True) for file in all_]
    )
    return frozenset().union(*(_names_of(file) for file in files if file.suffix == ".py"))


@functools.cache
def _names_of(file: Path) -> set[str]:
    source = file.read_bytes()
    return names_in(ast.parse(source)) if b"torch" in source else set()


def _is_optional(name: str) -> bool:
    return name.startswith(tuple(f"{optional}." for optional in _OPTIONAL))


def names_in(tree: ast.Module) -> set[str]:
    """Return the dotted names of torch that a module imports, or reads as attributes of what it imported."""
    names: set[str] = set()
    of_module = _bound(node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    for part in tree.body:
        nodes = list(ast.walk(part))
        own_names = _bound(nodes, of_module) if isinstance(part, (ast.FunctionDef, ast.ClassDef)) else {}
        reassigned = _set_otherwise(nodes)
        bound = {name: value for name, value in {**of_module, **own_names}.items() if name not in reassigned}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and _is_torch(node.module or ""):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names if _is_torch(alias.name)}
            elif isinstance(node, ast.Call):
                asked = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                names |= _asked_names(node.args, bound) if asked in _ASKING else set()
            elif isinstance(node, ast.Tuple) and len(node.elts) == 3:  # an entry of `exchanged`
                names |= _asked_names(node.elts, bound)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names |= {name} if (name := _dotted(node, bound)) else set()
    return names


def _bound(nodes: Iterable[ast.AST], outer: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return variable -> name of torch, for imports and for `variable: Any = name.of.torch`; `outer` are others."""
    bound = dict(outer)
    assigned: list[tuple[ast.expr, ast.expr]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if _is_torch(alias.name)]
            bound |= {alias.asname or "torch": alias.name if alias.asname else "torch" for alias in aliases}
        elif isinstance(node, ast.ImportFrom) and _is_torch(node.module or ""):
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            assigned.append((node.target, node.value))
    for target, value in assigned:
        if isinstance(target, ast.Name) and (name := _dotted(value, bound)):
            bound[target.id] = name
    return bound


def _set_otherwise(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the variables of a function that may hold other values: parameters, and those assigned again."""
    stores: Counter[str] = Counter()
    annotated, parameters = set(), set()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stores[node.id] += 1
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotated.add(node.target.id)
        elif isinstance(node, ast.arg):
            parameters.add(node.arg)
    return parameters | {name for name, count in stores.items() if count > 1 or name not in annotated}


def _dotted(node: ast.expr, bound: dict[str, str]) -> str:
    """Return the name of torch that a chain of attributes reads, or an empty text."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, "")
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value, bound)):
        return f"{base}.{node.attr}"
    return ""


def _asked_names(parts: list[ast.expr], bound: dict[str, str]) -> set[str]:
    """Return the names of torch of `name_here(owner, "name")` and what else has an owner and names of it as texts."""
    base = _dotted(parts[0], bound) if parts else ""
    texts = [each.value for each in parts[1:] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return {f"{base}.{text}" for text in texts} if base else set()


def _is_torch(module: str) -> bool:
    return module == "torch" or module.startswith("torch.")


def _exists(name: str) -> bool:
    """Whether torch has a name, or what this release calls it."""
    try:
        value_of(name)
    except LookupError:
        return False
    return True


def _may_exist(name: str) -> bool:
    """Whether a name is there, or is one of a module that is not imported."""
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 1):
        if not hasattr(value, part):
            return isinstance(value, ModuleType) and _is_module(".".join(parts[: index + 1]))
        value = getattr(value, part)
    return True


def _is_module(name: str) -> bool:
    """Whether a module of this name could be imported; what holds it is imported already."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # what holds it is no package
        return False
