"""A plan of what one node of an evidence tree watches, made once for all values that the node stands for."""

from __future__ import annotations

from typing import Any

from gearcache.guards.evidence.kinds import KINDS

_PLAIN_KEYS = (str, int, bytes)


class EvidencePlan:
    """Checks, attributes, keys and steps of one node; `empty` is the number of the node of empty containers."""

    __slots__ = ("attributes", "checks", "keys", "steps")

    def __init__(self, checks: list[Any], children: list[Any], empty: int | None) -> None:
        self.checks: list[tuple[Any, Any]] = []
        self.attributes: list[str] = []
        self.keys: dict[Any, None] = {}
        self.steps: list[tuple[str, Any]] = []
        has_attributes = any(step == "attr" for step, _, _ in children)
        for name, expected in checks:
            if name == "type" and has_attributes:
                continue  # attributes are watched with the class of their object
            kind = KINDS[name]
            if kind.reads_key and type(expected) in _PLAIN_KEYS:
                self.keys[expected] = None
            elif kind.watch is not None:
                self.checks.append((kind.watch, expected))
        for step, name, number in children:
            if step == "attr":
                self.attributes.append(name)
            if number == empty:
                continue
            if is_key(step, name):
                self.keys[name] = None
            elif step != "attr":
                self.steps.append((step, name))


def is_key(step: str, key: Any) -> bool:
    """Return whether a step reads one key, where the value is a dictionary."""
    return step in ("item", "dict_item") and type(key) in _PLAIN_KEYS
