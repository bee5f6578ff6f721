"""What the source files import and touch, read from their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "gearcache"
LAYERS = ("cache", "guards", "ge_cache")


def layer_files(layer: str) -> list[Path]:
    """All modules of one layer, or of the root package for `root`, relative to the repository."""
    if layer == "root":  # the layers are links inside it
        found = [path for path in PACKAGE.glob("**/*.py") if path.relative_to(PACKAGE).parts[0] not in LAYERS]
    else:
        base = place_of(Path(layer))
        found = [ROOT / layer / path.relative_to(base) for path in base.glob("**/*.py")]
    return sorted(path.relative_to(ROOT) for path in found)


def place_of(path: Path) -> Path:
    """Where a file or folder lies that is given relative to the repository: an sdist has the layers in the package."""
    return PACKAGE / path if path.parts[0] in LAYERS and not (ROOT / path.parts[0]).exists() else ROOT / path


def module_name(path: Path) -> str:
    """The import name of a file: `cache/keys/key.py` is `gearcache.cache.keys.key`."""
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else ("gearcache", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file given relative to the repository."""
    return ast.parse(place_of(path).read_text(encoding="utf-8"), str(path))


@cache
def imported(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and full name of each import, also of those in functions and under `TYPE_CHECKING`.

    `from a import b` counts as `a.b`, for `b` may be a module.
    """
    return list(_imported(tree))


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _dotted(node.func).endswith(("import_module", "__import__")):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def within(name: str, allowed: str) -> bool:
    """Whether a dotted name is `allowed` or lies below it."""
    return name == allowed or name.startswith(allowed + ".")


def private_torch_names(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and name of every private torch name that is imported, or read as an attribute or by `getattr`."""
    found = [(line, name) for line, name in imported(tree) if within(name, "torch") and _private(name)]
    bound = _names_bound_to_torch(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            name = _dotted(node)
        elif isinstance(node, ast.Call) and _dotted(node.func) == "getattr" and len(node.args) > 1:
            name = f"{_dotted(node.args[0])}.{getattr(node.args[1], 'value', '')}"
        else:
            continue
        first, _, rest = name.partition(".")
        if first in bound and _private(rest):
            found.append((node.lineno, f"{bound[first]}.{rest}"))
    return sorted(found)


def _names_bound_to_torch(tree: ast.Module) -> dict[str, str]:
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if within(alias.name, "torch"):
                    bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and within(node.module or "", "torch"):
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return bound


def _dotted(node: ast.expr) -> str:
    """`a.b.c` for a chain of attributes of a name, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def _is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def _private(name: str) -> bool:
    return any(_is_private(part) for part in name.split("."))
