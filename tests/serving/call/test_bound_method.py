"""Where the arguments of a call are, behind a decorator that takes any."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest

from gearcache.serving.call.bound_method import BoundMethod


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return wrapper


class Net:
    @passing_on
    def run(self, x: int, y: int = 0, *more: int, scale: int = 1) -> int:
        return (x + y + sum(more)) * scale


@pytest.mark.parametrize(
    ("args", "kwargs", "name", "place"),
    [
        pytest.param((1, 2), {}, "x", ("args[0]", 1), id="by position"),
        pytest.param((1, 2), {}, "y", ("args[1]", 2), id="the second"),
        pytest.param((1,), {"y": 2}, "y", ("kwargs['y']", 2), id="by keyword"),
        pytest.param((1,), {}, "y", None, id="not given"),
        pytest.param((1, 2, 3, 4), {}, "scale", None, id="by keyword only, and not given"),
        pytest.param((1, 2, 3, 4), {"scale": 5}, "scale", ("kwargs['scale']", 5), id="by keyword only"),
        pytest.param((1,), {}, "args", ("args", (1,)), id="of the decorator itself"),
    ],
)
def test_an_argument_is_found_where_the_call_gives_it(
    args: tuple[int, ...], kwargs: dict[str, int], name: str, place: tuple[str, Any] | None
) -> None:
    method: types.MethodType = Net().run  # type: ignore[assignment]
    signature = BoundMethod.of(method).signature()
    assert signature.place_of(name, signature.bind(args, kwargs)) == place


def test_other_defaults_count_from_the_next_call_on() -> None:
    class Own:
        def run(self, x: int, y: int = 0) -> int:
            return x + y

    bound = BoundMethod.of(Own().run)
    assert bound.signature().bind((1,), {})["y"] == 0
    Own.run.__defaults__ = (7,)
    assert bound.signature().bind((1,), {})["y"] == 7
