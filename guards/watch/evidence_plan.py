"""A plan of what one node of an evidence tree watches, made once for all values that the node stands for."""

from __future__ import annotations

from typing import Any

from gearcache.guards.evidence.kinds import KINDS

_PLAIN_KEYS = (str, int, bytes)


class EvidencePlan:
    """Checks, attributes, keys and steps of one node; `empty` is the number of the node of empty containers."""

    __slots__ = ("attributes", "checks", "children", "keys", "steps")

    def __init__(self, checks: list[Any], children: list[Any], empty: int | None) -> None:
        rows = [(KINDS[kind], expected) for kind, expected in checks]
        keys = [key for kind, key in rows if kind.reads_key and type(key) in _PLAIN_KEYS]
        self.checks = [
            (kind.watch, expected)
            for kind, expected in rows
            if kind.watch is not None and not (kind.reads_key and type(expected) in _PLAIN_KEYS)
        ]
        self.children = [child for child in children if child[2] != empty]
        self.attributes = [name for step, name, _ in children if step == "attr"]
        self.keys = dict.fromkeys([*keys, *(name for step, name, _ in self.children if is_key(step, name))])
        self.steps = [(step, name) for step, name, _ in self.children if step != "attr" and not is_key(step, name)]


def is_key(step: str, key: Any) -> bool:
    """Return whether a step reads one key, where the value is a dictionary."""
    return step in ("item", "dict_item") and type(key) in _PLAIN_KEYS
