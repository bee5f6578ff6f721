"""A case: a method that depends on one fact, and what another process or a later call has in place of that fact."""

from __future__ import annotations

import contextlib
import sys
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

_ABSENT = object()
#: Makes a function the method of a case.
Decorator = Callable[[Callable[..., Any]], Any]


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

    def by(self, setter: Callable[..., Any], value: Any, before: Any) -> None:
        """Call a function with another value, and with the one before at the end; tuples are several arguments."""
        value, before = (each if isinstance(each, tuple) else (each,) for each in (value, before))
        self.callback(setter, *before)
        setter(*value)

    def item(self, mapping: Any, key: Any, value: Any) -> None:
        """Set an item of a dictionary."""
        before = mapping.get(key, _ABSENT)
        mapping[key] = value
        self.callback(mapping.pop, key) if before is _ABSENT else self.callback(mapping.__setitem__, key, before)


#: Makes the fact of a case another one.
Change = Callable[[Any, Patch], Any]


class Case(nn.Module):
    """A module whose `run` depends on one fact, and `change`, which makes that fact another one."""

    #: What the refusal of the method says; False where it is served; None where either is right.
    refused: str | bool | None = None
    #: Whether the method may write to the module: it is called twice then, and what it leaves there is compared.
    writes = False

    def run(self, x: Tensor) -> Any:
        """Return what the fact leads to."""
        raise NotImplementedError

    def change(self, patch: Patch) -> None:
        """Make the fact another one. Nothing where the process itself differs (its hash seed)."""

    @classmethod
    def changed(cls, function: Callable[[Any, Patch], None]) -> Callable[[Any, Patch], None]:
        """Take a function of several lines as `change`."""
        cls.change = function  # type: ignore[method-assign]
        return function


def put(owner: Any, name: str, value: Any) -> Change:
    """Return the change that gives an attribute another value."""
    return lambda self, patch: patch(owner, name, value)


def wrapped(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Change:
    """Return the change that gives an attribute what is made of its value."""
    return lambda self, patch: patch(owner, name, wrap(getattr(owner, name)))


def case(
    *,
    of: type[Case] = Case,
    change: Change | None = None,
    refused: str | bool | None = None,
    **made: Callable[[], Any],
) -> Decorator:
    """Make a function the `run` of a case.

    The module is one of `of`, with an attribute for each function in `made`. A method that is `refused` says so in
    these words.
    """

    def decorate(run: Callable[..., Any]) -> type[Case]:
        def __init__(self: Any) -> None:
            super(cls, self).__init__()
            for name, make in made.items():
                setattr(self, name, make())

        members: dict[str, Any] = {"__module__": run.__module__, "__doc__": run.__doc__, "run": run}
        if made:
            members["__init__"] = __init__
        if change is not None:
            members["change"] = change
        if refused is not None:
            members["refused"] = refused
        cls = type(run.__name__, (of,), members)
        return cls

    return decorate


def text(
    of: type[Case], body: str, *, name: str = "run", change: Change | None = None, refused: str | bool | None = False
) -> type[Case]:
    """Return a case that is given as the text of its method's body, in the file of `of`.

    It may write to the module unless there is a fact to change.
    """
    indented = textwrap.indent(textwrap.dedent(body.strip("\n")), "    ")
    made: dict[str, Any] = {}
    code = compile(f"def run(self, x):\n{indented}\n", f"<{name}>", "exec")
    exec(code, vars(sys.modules[of.__module__]), made)  # noqa: S102 - texts of the tests
    run = made["run"]
    run.__module__, run.__name__ = of.__module__, name
    found: type[Case] = case(of=of, change=change, refused=refused)(run)
    found.writes = change is None
    return found


def texts(
    of: type[Case], bodies: Mapping[str, str | tuple[str, str | bool]], refused: str | bool | None = False
) -> dict[str, type[Case]]:
    """Return cases that are given as texts, by name. Each may have what its refusal says; `refused` says it for all."""
    rows = {name: (row, refused) if isinstance(row, str) else row for name, row in bodies.items()}
    return {name: text(of, body, name=name, refused=words) for name, (body, words) in rows.items()}


def changed(
    of: type[Case], rows: Mapping[str, tuple[str, Change]], refused: bool | None = None
) -> dict[str, type[Case]]:
    """Return cases that are given as texts with the change of what each depends on, by name."""
    return {name: text(of, body, name=name, change=change, refused=refused) for name, (body, change) in rows.items()}
