"""How the first rank decides from all votes: which rank compiles what, when all load, and when the meeting ends.

A vote is `{"pieces": [PieceVote as a list, …]}`, or `{"failed": reason}`. A decision is one of `{"do": "load"}`,
`{"do": "go"}`, `{"do": "compile", "who": {"<work>@<place>": rank}}`, `{"do": "stop", …}`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

#: How many times ranks compile before they give up: together, by equal traces, alone, and after damage.
MOST_COMPILES = 4

LEFT_OUT = ("out", "impossible")


class PieceVote(Struct, frozen=True):
    """The state of one piece of work on one rank.

    `state` is `stored`, `loaded` or `missing`, or, for a call that is not needed and cannot be made, `out` (this start
    found it) or `impossible` (an earlier start found it). Ranks with equal `work` and `place` need one compile;
    `reason` is why it is missing, or left out.
    """

    name: str
    state: str
    work: str
    place: str
    reason: str = ""

    @property
    def share(self) -> str:
        """The identifier of the work that one compile serves."""
        return f"{self.work}@{self.place}"


def vote_of(pieces: list[PieceVote]) -> dict[str, Any]:
    """Return the vote of a rank that has not failed."""
    return {"pieces": [list(astuple(piece)) for piece in pieces]}


class Leader:
    """Makes the decisions of one meeting."""

    def __init__(self) -> None:
        self._compiles = 0

    def decide(self, votes: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the decision for the votes of all ranks, in their order."""
        for rank, vote in enumerate(votes):
            if "failed" in vote:
                return _stop(rank, vote["failed"])
        pieces = [[PieceVote(*item) for item in vote["pieces"]] for vote in votes]
        missing = _missing(pieces)
        if missing and self._compiles == MOST_COMPILES:
            rank, piece = missing[0]
            reason = f"`{piece.name}` is missing although it was compiled {MOST_COMPILES} times: {piece.reason}"
            return _stop(rank, reason)
        if missing:
            self._compiles += 1
            return {"do": "compile", "who": _compilers(missing)}
        if (stop := _unequal(pieces)) is not None:
            return _stop(*stop)
        is_loaded = all(piece.state != "stored" for rank_pieces in pieces for piece in rank_pieces)
        return {"do": "go" if is_loaded else "load"}


def _missing(pieces: list[list[PieceVote]]) -> list[tuple[int, PieceVote]]:
    """Return the missing pieces by rank. `impossible`, found by an earlier start, counts only if all ranks agree."""
    possible = {piece.work for rank_pieces in pieces for piece in rank_pieces if piece.state not in LEFT_OUT}
    return [
        (rank, piece)
        for rank, rank_pieces in enumerate(pieces)
        for piece in rank_pieces
        if piece.state == "missing" or (piece.state == "impossible" and piece.work in possible)
    ]


def _compilers(missing: list[tuple[int, PieceVote]]) -> dict[str, int]:
    """Return the rank that compiles each share: of the ranks that lack it, the first one with the least work."""
    ranks_by_share: dict[str, list[int]] = {}
    for rank, piece in missing:
        ranks_by_share.setdefault(piece.share, []).append(rank)
    busy: Counter[int] = Counter()
    compilers = {}
    for share, ranks in ranks_by_share.items():
        compilers[share] = min(ranks, key=lambda rank: (busy[rank], rank))
        busy[compilers[share]] += 1
    return compilers


def _unequal(pieces: list[list[PieceVote]]) -> tuple[int, str] | None:
    """Return a rank that lacks what another one with the same work has; calls that are not needed may be left out."""
    served = {piece.work for rank_pieces in pieces for piece in rank_pieces if piece.state not in LEFT_OUT}
    for rank, rank_pieces in enumerate(pieces):
        for piece in rank_pieces:
            if piece.state == "out" and piece.work in served:
                return rank, f"`{piece.name}` cannot be made here, and other ranks have it: {piece.reason}"
    return None


def _stop(rank: int, reason: str) -> dict[str, Any]:
    return {"do": "stop", "rank": rank, "reason": reason}
