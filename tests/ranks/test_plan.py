"""What the first rank decides from votes."""

from __future__ import annotations

from typing import Any

from gearcache.ranks.plan import MOST_COMPILES, Leader, PieceVote, vote_of


def vote(*pieces: tuple[str, str], place: str = "p") -> dict[str, Any]:
    return vote_of([PieceVote(f"Net.{work}", state, work, place, "why") for work, state in pieces])


def test_of_the_ranks_that_lack_the_same_the_one_with_least_to_do_compiles() -> None:
    lacking = vote(("a", "missing"), ("b", "missing"), ("c", "stored"))
    found = Leader().decide([vote(("a", "stored"), ("b", "stored")), lacking, lacking])
    assert found == {"do": "compile", "who": {"a@p": 1, "b@p": 2}}


def test_what_stays_missing_ends_after_some_rounds() -> None:
    leader, lacking = Leader(), vote(("a", "missing"))
    decisions = [leader.decide([vote(), lacking]) for _ in range(MOST_COMPILES + 1)]
    assert [found["do"] for found in decisions] == ["compile"] * MOST_COMPILES + ["stop"]
    assert (decisions[-1]["rank"], decisions[-1]["reason"][:8]) == (1, "`Net.a` ")


def test_a_call_that_is_not_needed_may_be_left_out_by_all_and_by_no_one_alone() -> None:
    out, loaded = vote(("a", "out")), vote(("a", "loaded"))
    assert Leader().decide([out, out]) == {"do": "go"}
    found = Leader().decide([loaded, out])
    assert (found["do"], found["rank"]) == ("stop", 1)
    assert "other ranks have it: why" in found["reason"]
