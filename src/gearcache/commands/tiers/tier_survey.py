"""Reports the state of each tier, for `gearcache doctor --tiers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from gearcache.cache.remote.admin.survey import TierSurvey, survey
from gearcache.cache.remote.requests.parallel import at_once
from gearcache.commands.common import Exit, count, environment_trust, layout_at, print_json, size_text, stop
from gearcache.commands.output.listing import Column, Listing, or_dash
from gearcache.commands.output.printing import echo
from gearcache.commands.tiers.chosen import tiers_at


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def _signers(signers: dict[str, int]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in sorted(signers.items())) or "-"


_TIERS = Listing(
    (
        Column("Tier", "tier"),
        Column("State", "state"),
        Column("Access", "access"),
        Column("Get", "get_seconds", _milliseconds, is_right=True),
        Column("Put", "put_seconds", _milliseconds, is_right=True),
        Column("Leases", "leases", lambda leases: {True: "yes", False: "no", None: "-"}[leases]),
        Column("Entries", "entries", or_dash),
        Column("Manifests", "manifests", or_dash, spare=2),
        Column("Size", "size", lambda size: "-" if size is None else size_text(size), spare=1),
        Column("Signed by", "signers", _signers),
    )
)


def show_tiers(urls: tuple[str, ...], cache_dir: Path | None, as_json: bool) -> None:
    """Try each tier, from $GEARCACHE_REMOTES or as given, and print its state; exit code 1 if one does not answer.

    A tier that rests after faults is tried too. If it may be written, a small object is written and removed.
    """
    tiers = tiers_at(layout_at(cache_dir, may_be_new=True), urls, "URL")
    trust = environment_trust()
    surveys = at_once(lambda tier: survey(tier, trust), tiers)
    rows = [_plain(state) for state in surveys]
    if as_json:
        print_json("doctor", {"tiers": rows})
    else:
        _TIERS.print(rows)
        for state in surveys:
            if state.problem:
                echo(f"{state.tier}: {state.problem}")
            for reason, number in state.refused.items():
                echo(f"{state.tier}: refuses {count(number, 'manifest')} of {state.read} that were read: {reason}")
    if not all(state.is_reachable for state in surveys):
        stop(Exit.WRONG)


def _plain(tier_survey: TierSurvey) -> dict[str, Any]:
    state = "reachable" if tier_survey.is_reachable else "FAIL"
    if tier_survey.resting:
        state += f", rested for {tier_survey.resting:.0f} s more"
    access = ("read only" if tier_survey.read_only else "read, write") + (", unsigned" if tier_survey.unsigned else "")
    return {**asdict(tier_survey), "reachable": tier_survey.is_reachable, "state": state, "access": access}
