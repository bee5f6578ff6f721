"""The reason of a miss: what differed first, and what a user can do about it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

#: How many stored values a reason names.
_LISTED = 4

#: Kind of a miss -> what a user can do; `{subject}` names the difference.
_ADVICE = {
    "absent": "the first call compiles; compile before traffic with `.warm(...)` to avoid the wait",
    "key": "the nearest stored entry differs there: use the same {subject} in both processes, or compile with this "
    "one first",
    "source": "compile again after each deployment of changed code, before traffic",
    "evidence": "the graph was built with the stored value: set `{subject}` back, or pass it as an argument, so that "
    "each value has a graph of its own",
    "arguments": "each value of an argument that is neither a tensor nor an int has a graph of its own, and so has "
    "each declared dtype; this call adds it; ints become inputs where they vary (`dynamic`), pass floats as tensors",
    "gear": "a graph for such a call is added, if one can be made; name sizes in `gears=` to compile them beforehand",
    "corrupt": "the file was put aside and the entry is compiled again; look at the disk if it happens twice",
    "unloadable": "the entry is kept; look at the fault it names, which is this host's",
    "unreadable": "make the folder of the cache readable for this user (in an image: `gearcache pack --folder`)",
    "other version": "entries of another version are left alone; compile with this version once",
    "unsigned": "give this process the key that the entries were signed with, or compile with it once",
}
#: Kinds that name a difference in the code, the module or the call.
MISFITS = ("source", "evidence", "arguments")
#: Kinds that compiling again does not fix: something of this host or process must be corrected.
_OF_HOST = ("unreadable", "unsigned")
_CONSTANT = (
    "the next graph takes `{subject}` as an input, except with `dynamic=False`, and where a trace needs its "
    "value{because}, such as for an index or a range: then pass it as a tensor, or write a slice for an index "
    "(`x[:, n:n + 1]`)"
)
_THREADS = (
    "set OMP_NUM_THREADS={stored}, as where it was compiled; torch uses no more threads than a host has cores, so one "
    "that has fewer needs entries of its own, and one that compiles for larger ones `gearcache prewarm --threads`"
)


class Reason(Struct, frozen=True):
    """One reason of a miss.

    `kind`: `absent`, `key` (a component of the key differs from the nearest entry), `source`, `evidence`, `arguments`,
    `gear`, or the fault of a file (`corrupt`, `unloadable`, `unreadable`, `other version`, `unsigned`). `subject`
    differed: `stored` and `present` are its values as text, `file` and `line` are its place, if it is code.
    """

    kind: str
    text: str
    subject: str = ""
    stored: str = ""
    present: str = ""
    file: str = ""
    line: int = 0
    #: For an int that is a constant of the stored graph: why it could not be an input, empty if unknown; else None.
    constant_because: str | None = None
    #: What a user can do, where the advice of the kind does not fit.
    own_advice: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def advice(self) -> str:
        """What a user can do."""
        if self._is_of_threads:
            return _THREADS.format(stored=self.stored)
        if self.constant_because is not None:
            because = f" ({self.constant_because})" if self.constant_because else ""
            return _CONSTANT.format(subject=self.subject, because=because)
        kind = "source" if self.kind == "key" and self.subject.startswith("method.code") else self.kind
        return self.own_advice or _ADVICE.get(kind, "").format(subject=self.subject)

    @property
    def remedy(self) -> str:
        """Return what a user can do other than compile or fetch the entry; else empty."""
        return self.advice if self.kind in _OF_HOST or self._is_of_threads else ""

    @property
    def _is_of_threads(self) -> bool:
        return self.kind == "key" and self.subject.endswith(".threads")

    def explained(self) -> list[str]:
        """Return the reason as lines of text."""
        lines = [f"miss: {self.text}"]
        if self.subject and (self.stored or self.present) and self.kind in ("source", "evidence", "arguments", "key"):
            lines.append(f"    {self.subject}: stored {_short(self.stored)}, now {_short(self.present)}")
        if self.advice:
            lines.append(f"    what to do: {self.advice}")
        return lines


def merged(reasons: Iterable[Reason]) -> list[Reason]:
    """Return reasons merged so that one for each difference covers all its stored values, in order."""
    groups: dict[tuple[str, str, str], list[Reason]] = {}
    for reason in dict.fromkeys(reasons):
        groups.setdefault((reason.kind, reason.subject or reason.text, reason.present), []).append(reason)
    merged_reasons = []
    for group in groups.values():
        first, stored = group[0], list(dict.fromkeys(reason.stored for reason in group))
        if len(stored) > 1:
            stored_text = ", ".join(map(_short, stored[:_LISTED])) + (", …" if len(stored) > _LISTED else "")
            text = f"`{first.subject}` is {first.present}; the {len(stored)} stored traces are for {stored_text}"
            first = replace(first, text=text, stored=stored_text)
        merged_reasons.append(first)
    return merged_reasons


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
