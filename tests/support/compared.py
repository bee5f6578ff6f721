"""Values compared with their types, objects by what is in them."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor


def assert_same(found: Any, expected: Any) -> None:
    """Compare values, types and, of objects, what is in them."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert found.layout is not torch.strided or found.stride() == expected.stride()
    elif isinstance(expected, (list, tuple, deque)):
        assert getattr(found, "maxlen", None) == getattr(expected, "maxlen", None)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (float, complex)):
        assert repr(found) == repr(expected)  # of zeros and of what is no number too
    elif hasattr(expected, "__dict__"):
        assert_same(vars(found), vars(expected))
    elif hasattr(expected, "__slots__"):
        for name in type(expected).__slots__:
            assert_same(getattr(found, name, None), getattr(expected, name, None))
    else:
        assert found == expected, (found, expected)


def is_same(found: Any, expected: Any) -> bool:
    """Whether `assert_same` finds no difference."""
    try:
        assert_same(found, expected)
    except (AssertionError, ValueError):  # of `zip`, for other lengths
        return False
    return True
