"""The parameters of torch's private functions in the releases that ran with the tests.

A function that takes other arguments fails in the middle of a trace, like a missing one. `torch_parameters.txt` has one
line for each function and form, with the releases that have it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import types
from pathlib import Path
from typing import Any

from gearcache.ge_cache.private_torch.renamed import RENAMED, name_here

PARAMETERS = Path(__file__).with_name("torch_parameters.txt")
_LINE = re.compile(r"(torch[\w.]*)\((.*)\): ([\d. ]+)")


def value_of(name: str) -> Any:
    """Return torch's value of a name, or of its name in this release; `LookupError` if it is missing."""
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 1):
        try:
            value = getattr(value, name_here(value, part) if part in RENAMED else part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(parts[: index + 1]))
            except ImportError:
                raise LookupError(name) from None
    return value


def parameters_of(value: Any) -> str | None:
    """Return the names of parameters, with `=` behind optional ones; None for anything but a function."""
    function = getattr(value, "__func__", value)
    if not isinstance(function, types.FunctionType):
        return None
    parameters = inspect.signature(function).parameters.values()
    bare = [parameter.replace(annotation=parameter.empty, default=parameter.empty) for parameter in parameters]
    return ", ".join(
        f"{parameter}{'' if own.default is own.empty else '='}" for parameter, own in zip(bare, parameters, strict=True)
    )


@functools.cache
def known() -> dict[str, dict[str, list[str]]]:
    """Return name -> parameters -> releases of all recorded functions; those of the last release come last."""
    releases: dict[str, dict[str, list[str]]] = {}
    for line in PARAMETERS.read_text(encoding="utf-8").splitlines():
        if (match := _LINE.fullmatch(line)) is not None:
            releases.setdefault(match[1], {})[match[2]] = match[3].split()
    return releases


def other_parameters(name: str) -> str:
    """Return the last recorded form of a torch function that has another one now; empty if its form is recorded."""
    releases = known().get(name)
    if releases is None or parameters_of(value_of(name)) in releases:
        return ""
    return f"{name}({list(releases)[-1]})"
