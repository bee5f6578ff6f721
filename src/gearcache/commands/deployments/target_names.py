"""Completes targets of `prewarm` and `explain`: a file, and a function in it. Nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

_LARGEST = 4 << 20


def complete_target(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `file.py` by the shell, and after a colon the functions of the file or module."""
    place, colon, start = incomplete.rpartition(":")
    if not colon:
        return [CompletionItem(incomplete, type="file")]
    source = next((path for path in _files(place) if path.is_file()), None)
    names = _functions(source) if source is not None else ()
    return [CompletionItem(f"{place}:{name}") for name in names if name.startswith(start)]


def _files(place: str) -> Iterator[Path]:
    if place.endswith(".py"):
        yield Path(place)
    elif all(part.isidentifier() for part in place.split(".")):
        module = Path(*place.split("."))
        yield module.with_name(f"{module.name}.py")
        yield module / "__init__.py"


def _functions(path: Path) -> list[str]:
    """Return the functions that can be called without arguments."""
    try:
        if path.stat().st_size > _LARGEST:
            return []
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    return sorted(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name[0] != "_" and not _required(node.args)
    )


def _required(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional > 0 or any(default is None for default in arguments.kw_defaults)
