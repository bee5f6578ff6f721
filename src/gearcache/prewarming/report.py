"""The report of a prewarm, as data; works without torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from gearcache.guards.gears.short_names import short_names

#: Before the number of a further graph of a gear.
_NUMBERED = ", graph "


class Prewarmed(Struct):
    """The result of one entry: graphs that were compiled now, present before, missing (dry run), or failed (and why).

    A graph is named after its gear. A method has several graphs for a gear where its calls need several variants: those
    after the first are `…, graph 2` and so on.
    """

    method: str
    entry: str
    rank: int | None = None
    #: sha256 in hexadecimal, and the folder of the ranks; empty if the call has no key.
    key: str = ""
    ranks: str = ""
    compiled: dict[str, float] = field(default_factory=dict)
    present: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    #: Declared calls at special sizes (1) for which no graph can be made, and why: nothing is missing there.
    impossible: dict[str, str] = field(default_factory=dict)
    #: Why the entry did not serve the first call that was looked up.
    reason: str = ""
    #: What a user can do about that, in a dry run; empty if the advice is to compile or to fetch it.
    advice: str = ""
    #: Why each graph is missing, in a dry run.
    reasons: dict[str, str] = field(default_factory=dict)
    #: Which process compiles it instead, if the work is shared; nothing was done for it here.
    left_to: str = ""
    #: Bytes of the blobs that were loaded or, in a dry run, are stored.
    size: int = 0

    def graph_name(self, gear: str) -> str:
        """Return a name for another graph of a gear, which no graph of this entry has."""
        taken = {*self.compiled, *self.present, *self.missing, *self.failed}
        numbers = itertools.count(2)
        name = gear
        while name in taken:
            name = f"{gear}{_NUMBERED}{next(numbers)}"
        return name

    def named(self, graphs: Iterable[str]) -> list[str]:
        """Return the short names of some of its graphs."""
        all_names = [*self.compiled, *self.present, *self.missing, *self.failed, *self.impossible]
        names = short_names(name.partition(_NUMBERED)[0] for name in all_names)
        parts = [graph.partition(_NUMBERED) for graph in graphs]
        return [f"{names.get(gear, gear)}{separator}{number}" for gear, separator, number in parts]

    def to_plain(self) -> dict[str, Any]:
        """Return everything as JSON data except the advice, which is for people."""
        return {name: value for name, value in asdict(self).items() if name != "advice"}


class PrewarmReport(Struct):
    """The outcome of a prewarm. `never_called` names cached methods that were made but not called."""

    entries: list[Prewarmed]
    never_called: list[str]
    seconds: float
    dry_run: bool = False
    interrupted: bool = False

    @property
    def compiled(self) -> int:
        """Graphs compiled."""
        return sum(len(entry.compiled) for entry in self.entries)

    @property
    def present(self) -> int:
        """Graphs that were stored before."""
        return sum(len(entry.present) for entry in self.entries)

    @property
    def missing(self) -> int:
        """Graphs that a run without `dry_run` would compile."""
        return sum(len(entry.missing) for entry in self.entries)

    @property
    def failed(self) -> int:
        """Graphs and calls that failed."""
        return sum(len(entry.failed) for entry in self.entries)

    @property
    def left(self) -> int:
        """Entries that belong to other shares."""
        return sum(bool(entry.left_to) for entry in self.entries)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was requested, of this share, is stored now; False if nothing was requested."""
        return bool(self.entries) and not (self.failed or self.missing or self.interrupted)

    def to_plain(self) -> dict[str, Any]:
        """Return everything as JSON data."""
        return {
            "entries": [entry.to_plain() for entry in self.entries],
            "never_called": self.never_called,
            "compiled": self.compiled,
            "present": self.present,
            "missing": self.missing,
            "failed": self.failed,
            "left": self.left,
            "seconds": round(self.seconds, 3),
            "dry_run": self.dry_run,
            "interrupted": self.interrupted,
            "complete": self.is_complete,
        }


class PrewarmInterrupted(KeyboardInterrupt):
    """Ctrl-C during a prewarm: finished graphs are stored; `report` lists them."""

    def __init__(self, report: PrewarmReport) -> None:
        super().__init__()
        self.report = report
