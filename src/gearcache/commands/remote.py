"""`gearcache remote status`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from gearcache.cache.remote.parallel import at_once
from gearcache.cache.remote.survey import Survey, survey
from gearcache.commands.common import (
    Exit,
    common_options,
    count,
    environment_trust,
    layout_at,
    print_json,
    size_text,
    stop,
)
from gearcache.commands.printing import echo
from gearcache.commands.table import print_table
from gearcache.commands.tiers import tiers_at

#: A difference of clocks below this is not told: engines give whole seconds.
_SAME_CLOCK_SECONDS = 2.0

_TITLES = ("Tier", "State", "Access", "Get", "Put", "Leases", "Clock", "Entries", "Manifests", "Size", "Signed by")


@click.command("remote")
@click.argument("action", type=click.Choice(["status"]))
@click.argument("urls", nargs=-1, metavar="[URL]...")
@common_options
def command(action: str, urls: tuple[str, ...], cache_dir: Path | None, as_json: bool) -> None:
    """Try each tier, of $GEARCACHE_REMOTES or as given, and say how it is.

    It is asked also where it rests after faults, and writes and removes a small object where it may be written.
    `Leases` tells whether of many cold hosts one compiles: it is tried whether the tier honours conditional writes.
    Exit code 1 when a tier cannot be reached.
    """
    tiers = tiers_at(layout_at(cache_dir, may_be_new=True), urls, "URL")
    trust = environment_trust()
    found = at_once(lambda tier: survey(tier, trust), tiers)
    if as_json:
        print_json("remote", {"tiers": [{**asdict(each), "reachable": each.is_reachable} for each in found]})
    else:
        titles = (
            "Tier",
            "State",
            "Access",
            "Get",
            "Put",
            "Leases",
            "Clock",
            "Entries",
            "Manifests",
            "Size",
            "Signed by",
        )
        print_table(titles, [_row(each) for each in found], right=titles[3:5], spare=("Manifests", "Size", "Clock"))
        for each in found:
            if each.problem:
                echo(f"{each.tier}: {each.problem}")
            for reason, number in each.refused.items():
                echo(f"{each.tier}: refuses {count(number, 'manifest')} of {each.read} that were read: {reason}")
    if not all(each.is_reachable for each in found):
        stop(Exit.WRONG)


def _row(each: Survey) -> tuple[str, ...]:
    state = "reachable" if each.is_reachable else "FAIL"
    if each.resting:
        state += f", rested for {each.resting:.0f} s more"
    access = ("read only" if each.read_only else "read, write") + (", unsigned" if each.unsigned else "")
    signed = ", ".join(f"{name} ({number})" for name, number in sorted(each.signers.items()))
    return (
        each.tier,
        state,
        access,
        _milliseconds(each.get_seconds),
        _milliseconds(each.put_seconds),
        {True: "yes", False: "no", None: "-"}[each.leases],
        _clock(each.clock_skew),
        _number(each.entries),
        _number(each.manifests),
        "-" if each.size is None else size_text(each.size),
        signed or "-",
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def _clock(skew: float | None) -> str:
    if skew is None:
        return "-"
    return "same" if abs(skew) < _SAME_CLOCK_SECONDS else f"{skew:+.0f} s"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
