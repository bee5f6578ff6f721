"""One fact of a process that a method depends on, and what another process has in its place."""

from __future__ import annotations

import contextlib
import types
from typing import Any

from torch import nn

_ABSENT = object()


class Patch(contextlib.ExitStack):
    """Changes that are taken back at the end."""

    def __call__(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute."""
        if isinstance(owner, types.FunctionType) and name in vars(types.FunctionType):  # `__defaults__`
            before = getattr(owner, name)
        else:
            before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self.callback(delattr, owner, name) if before is _ABSENT else self.callback(setattr, owner, name, before)

    def without(self, owner: Any, name: str) -> None:
        """Delete an attribute."""
        before = vars(owner)[name]
        delattr(owner, name)
        self.callback(setattr, owner, name, before)

    def item(self, mapping: Any, key: Any, value: Any) -> None:
        """Set an item of a dictionary."""
        before = mapping.get(key, _ABSENT)
        mapping[key] = value
        self.callback(mapping.pop, key) if before is _ABSENT else self.callback(mapping.__setitem__, key, before)


class Fact(nn.Module):
    """A module whose `run` depends on one fact, and `change`, which makes that fact another one."""

    def run(self, x):
        """Return what the fact leads to."""
        raise NotImplementedError

    def change(self, patch: Patch) -> None:
        """Make the fact another one. Nothing where the process itself differs (its hash seed)."""
