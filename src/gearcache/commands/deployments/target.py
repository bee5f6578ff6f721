"""Finds the function that a command line names: `package.module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from gearcache.commands.common import Exit, stop
from gearcache.commands.output.printing import echo
from gearcache.commands.output.verbosity import is_verbose
from gearcache.errors import GearcacheError
from gearcache.guards.evidence.names import a_type
from gearcache.torch_release import require_torch


def find_target(text: str) -> Callable[[], object]:
    """Import the module and return the function; a usage error names the missing part.

    The working folder is importable, as with `python -m`. A file is imported under its name, so the serving process
    must import it under that name too: the module's name is part of the key.
    """
    module_name, colon, function_name = text.rpartition(":")
    if not colon or not module_name or not function_name:
        raise click.UsageError(f"`{text}` names no function; write `package.module:function`, or `file.py:function`")
    try:
        require_torch()
    except GearcacheError as error:
        echo(f"error: {error}", err=True)
        stop(Exit.WRONG)
    sys.path.insert(0, str(Path.cwd()))
    module = _import_file(Path(module_name)) if module_name.endswith(".py") else _import_module(module_name)
    function: Any = module
    for name in function_name.split("."):
        function = getattr(function, name, None)
    if function is None:
        names = ", ".join(sorted(name for name, value in vars(module).items() if callable(value) and name[0] != "_"))
        raise click.UsageError(f"`{module_name}` has no function `{function_name}`; it has {names or 'none'}")
    if not callable(function):
        raise click.UsageError(f"`{text}` is {a_type(function)}, not a function")
    return function  # type: ignore[no-any-return]


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise click.UsageError(f"there is no file `{path}`")
    if not path.stem.isidentifier():
        raise click.UsageError(f"`{path}` cannot be imported: `{path.stem}` is not a module name")
    sys.path.insert(0, str(path.resolve().parent))
    return _import_module(path.stem)


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise click.UsageError(f"there is no module `{error.name}`; the working folder is searched too") from None
        return _failed(name)
    except (Exception, SystemExit):  # a script that ends itself would end the command with its own exit code
        return _failed(name)


def print_failure(error: BaseException) -> None:
    """Print what a function has raised, with the frames of its own code alone; with `--verbose`, with all of them."""
    shown = traceback.TracebackException.from_exception(error)
    if not is_verbose():
        if isinstance(error, GearcacheError):  # its text names the cause
            shown.__cause__, shown.__suppress_context__ = None, True
        part: traceback.TracebackException | None = shown
        while part is not None:
            part.stack = traceback.StackSummary.from_list([frame for frame in part.stack if _is_of_user(frame)])
            part = part.__cause__ or part.__context__
    click.echo("".join(shown.format()), nl=False, err=True)


def _is_of_user(frame: traceback.FrameSummary) -> bool:
    packages = (sys.modules[name].__file__ for name in ("gearcache", "torch") if name in sys.modules)
    folders = [Path(file).parent for file in packages if file is not None]
    return not any(Path(frame.filename).is_relative_to(folder) for folder in folders)


def _failed(name: str) -> ModuleType:
    traceback.print_exc(file=sys.stderr)
    echo(f"error: `{name}` cannot be imported", err=True)
    stop(Exit.WRONG)
