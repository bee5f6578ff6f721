"""Resolves the names of arguments that a wrapper takes as `*args, **kwargs`: users know the method's own names."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping
from typing import Any


def at_their_places(
    values: Mapping[str, Any] | None, function: types.MethodType, arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return a mapping of argument paths; paths to arguments behind a wrapper are changed to their places in a call.

    `input_ids` is `kwargs['input_ids']` in a call by keyword, and `args[0]` in one by position. A path that begins with
    a parameter of the wrapper itself, or with a name that the call does not give, is not changed.
    """
    if not values:
        return dict(values) if values is not None else None
    return {_place(path, function, arguments): value for path, value in values.items()}


def place_of_argument(name: str, function: types.MethodType, arguments: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the path and the value of the argument of a name in a call; None if the call does not give it."""
    outer = inspect.signature(function.__func__, follow_wrapped=False).parameters
    if name in outer:
        return (name, arguments[name]) if name in arguments else None
    kinds = {parameter.kind: parameter.name for parameter in outer.values()}
    by_keyword = kinds.get(inspect.Parameter.VAR_KEYWORD)
    if by_keyword is not None and name in arguments[by_keyword]:
        return f"{by_keyword}[{name!r}]", arguments[by_keyword][name]
    by_position = kinds.get(inspect.Parameter.VAR_POSITIONAL)
    inner = list(inspect.signature(function.__func__).parameters)
    if by_position is not None and name in inner:
        index = inner.index(name) - list(outer).index(by_position)
        if 0 <= index < len(arguments[by_position]):
            return f"{by_position}[{index}]", arguments[by_position][index]
    return None


def _place(path: str, function: types.MethodType, arguments: Mapping[str, Any]) -> str:
    match = re.match(r"\w+", path)
    if match is None or match[0] in inspect.signature(function.__func__, follow_wrapped=False).parameters:
        return path
    place = place_of_argument(match[0], function, arguments)
    return path if place is None else place[0] + path[match.end() :]
