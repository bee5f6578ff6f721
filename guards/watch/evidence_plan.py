"""A plan of what one node of an evidence tree watches, made once for all values that the node stands for."""

from __future__ import annotations

from typing import Any

#: Kinds of checks that do not depend on the content of a container.
_OF_THE_OBJECT = {"type", "not_none", "name", "bases"}
_PLAIN_KEYS = (str, int, bytes)


class EvidencePlan:
    """Checks, attributes, keys and steps of one node; `empty` is the number of the node of empty containers."""

    __slots__ = ("attributes", "checks", "children", "keys", "steps")

    def __init__(self, checks: list[Any], children: list[Any], empty: int | None) -> None:
        keys = [key for kind, key in checks if is_key(kind, key)]
        self.checks = [(kind, key) for kind, key in checks if kind not in _OF_THE_OBJECT and not is_key(kind, key)]
        self.children = [child for child in children if child[2] != empty]
        self.attributes = [name for step, name, _ in children if step == "attr"]
        self.keys = dict.fromkeys([*keys, *(name for step, name, _ in self.children if is_key(step, name))])
        self.steps = [(step, name) for step, name, _ in self.children if step != "attr" and not is_key(step, name)]


def is_key(kind: str, key: Any) -> bool:
    """Return whether a check or a step reads one key, where the value is a dictionary."""
    return kind in ("item", "dict_item", "lacks", "contains") and type(key) in _PLAIN_KEYS
