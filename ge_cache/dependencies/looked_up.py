"""Find dictionaries of a user's class in which a trace only looks up keys.

Dynamo guards such a dictionary as a whole, by its length and by the position of its keys. A library's registry to which
every model of the process adds an entry (transformers' `_CAN_RECORD_REGISTRY`) would then distinguish processes
although the trace read a single key. Where the trace only did lookups, those keys are the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check

#: Guards that Dynamo makes where a trace depends on all keys.
_ALL_KEYS = {"DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK"}


class LookedUp(Struct):
    """One dictionary: its keys in order when the trace first saw it, and the looked-up keys with their presence."""

    keys: list[Any]
    asked: dict[Any, bool] = field(default_factory=dict)

    def checks(self, access: Access) -> list[Check]:
        """Return the checks of the looked-up keys."""
        return [Check("contains" if present else "lacks", access, key) for key, present in self.asked.items()]


class Lookups:
    """Notes, by Dynamo's source of a dictionary, how a trace uses it."""

    def __init__(self) -> None:
        self._dictionaries: dict[Any, LookedUp] = {}
        self._used_otherwise: set[Any] = set()

    def met(self, source: Any, value: Mapping[Any, Any]) -> None:
        """Note that the trace found a dictionary."""
        if source in self._dictionaries:
            return
        self._dictionaries[source] = LookedUp(list(dict.keys(value)))  # type: ignore[arg-type]
        # A class that overrides lookups is user code with unknown behaviour.
        if any(getattr(type(value), name) is not getattr(dict, name) for name in ("__getitem__", "__contains__")):
            self._used_otherwise.add(source)

    def asked(self, source: Any, key: Any, present: bool) -> None:
        """Note one lookup."""
        if source in self._dictionaries:
            if type(key) not in (str, int):
                self._used_otherwise.add(source)
            self._dictionaries[source].asked[key] = present

    def used(self, source: Any) -> None:
        """Note any other operation than a lookup."""
        self._used_otherwise.add(source)

    def only(self, guards: Iterable[Any], written: Iterable[Any]) -> dict[Any, LookedUp]:
        """Return the dictionaries in which only keys were looked up; `written`: sources of the frame's writes."""
        others = self._used_otherwise | set(written)
        others |= {guard.originating_source for guard in guards if guard.inner_create_fn().__name__ in _ALL_KEYS}
        return {source: looked_up for source, looked_up in self._dictionaries.items() if source not in others}
