"""Methods of Dynamo's variables, which are branches of `call_method` or, since torch 2.15, entries of tables.

An object of a user's container class calls an entry of a table of its base without that base's `call_method`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: The tables of a variable's class, by the names of methods: an entry is called as `call_method` is.
_TABLE = "tp_methods"


def named_methods(owner: Any, *names: str) -> Iterator[tuple[Any, str]]:
    """Yield the places (owner, name) that calls of some methods of a class go through, maybe through two of them.

    The functions there have the parameters of `call_method`.
    """
    yield owner, "call_method"
    for base in owner.__mro__:
        table = vars(base).get(_TABLE, {})
        yield from ((table, name) for name in names if name in table)
