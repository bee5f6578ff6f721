"""The `wait` argument of `warm`: whether it waits for the build that it has started."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gearcache.errors import OptionError
from gearcache.serving.call.call import Call


def take_wait(name: str, function: Callable[..., Any], kwargs: dict[str, Any], *, is_background: bool) -> bool:
    """Take `wait` out of the arguments of `warm`, unless the method has one of this name; returns whether to wait.

    By default `warm` does not wait with `on_miss="background"`. `OptionError` for a value that is not a bool, and for
    False if every `warm` waits.
    """
    if "wait" not in kwargs or "wait" in inspect.signature(function, follow_wrapped=False).parameters:
        return not is_background
    wait = kwargs.pop("wait")
    if not isinstance(wait, bool) or not (wait or is_background):
        raise OptionError(f"`{name}`: warm: wait is {wait!r}; it must be True, or False with on_miss='background'")
    return wait


def begin_build(prepare: Callable[[Call], object], call: Call, *, waits: bool) -> None:
    """Start the background build of what a call needs; with `waits`, return when it has ended, well or not."""
    # A relaunch without builds does not import the code that forks.
    from gearcache.serving.miss.background import wait_for_slot

    while prepare(call) is None and waits and wait_for_slot():
        pass
