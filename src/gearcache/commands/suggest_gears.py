"""`gearcache suggest-gears`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from gearcache.cache.layout import SHAPES_VARIABLE as _VARIABLE
from gearcache.cache.remote.persistence import SECONDS, persistently
from gearcache.cache.remote.protocol import Deadline, RemoteError
from gearcache.cache.remote.shapes import ProcessShapes, ShapesTier
from gearcache.commands.common import (
    Age,
    Exit,
    common_options,
    count,
    environment_trust,
    layout_at,
    print_json,
    stop,
    warn,
)
from gearcache.commands.printing import echo, note
from gearcache.commands.tiers import tiers_at
from gearcache.errors import GearSpecError
from gearcache.guards.gears.sizes import MAX_GEARS
from gearcache.telemetry.fleet_gears import MethodTraffic, Proposal, propose, summed
from gearcache.telemetry.size_lists import MOST_EFFORT


@click.command("suggest-gears")
@click.argument("method", required=False)
@click.option("--from", "urls", multiple=True, metavar="URL", help=f"A tier; else ${_VARIABLE}. Repeatable.")
@click.option(
    "--gears", "number", type=click.IntRange(1, MAX_GEARS), help="At most so many; else as many as the method has now."
)
@click.option("--newer-than", "age", type=Age(), help="Only what processes told so recently, as 30d.")
@common_options
def command(
    method: str | None,
    urls: tuple[str, ...],
    number: int | None,
    age: float | None,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Propose gears for the next release, from the shapes that all hosts have met.

    Processes tell a tier what they meet where $GEARCACHE_SHAPES names it. METHOD may be a pattern, as `Model.*`. Exit
    code 1 when a tier cannot be read, or nothing was told of the method.
    """
    named = urls or tuple(os.environ.get(_VARIABLE, "").split())
    if not named:
        raise click.UsageError(f"no tier is named: give --from, or set ${_VARIABLE}")
    told, refused, problems = _read(layout_at(cache_dir, may_be_new=True), named)
    since = None if age is None else time.time() - age
    traffic = [
        row
        for row in summed(each for each in told if since is None or each.created >= since)
        if method is None or fnmatchcase(row.method, method) or fnmatchcase(row.full_name, method)
    ]
    rows = [_row(each, number, MOST_EFFORT // len(traffic)) for each in traffic]
    if as_json:
        plain = [_plain(*row) for row in rows]
        print_json("suggest-gears", {"methods": plain, "refused": refused, "problems": problems})
    else:
        for row in rows:
            _print(*row, alike=[each for each in traffic if each.method == row[0].method and each is not row[0]])
    for reason in refused:
        warn(reason)
    for problem in problems:
        warn(problem)
    if not rows:
        note(f"nothing was told{f' of `{method}`' if method is not None else ''} in {', '.join(named)}")
    if problems or not rows:
        stop(Exit.WRONG)


def _read(layout: Any, urls: tuple[str, ...]) -> tuple[list[ProcessShapes], list[str], list[str]]:
    """Return what each process told last, why other objects were refused, and why tiers could not be read."""
    trust = environment_trust()
    found: dict[tuple[str, str], ProcessShapes] = {}
    refused: list[str] = []
    problems: list[str] = []
    for tier in tiers_at(layout, urls, "--from"):
        shapes = ShapesTier(tier, trust)
        try:
            told = persistently(lambda shapes=shapes: shapes.latest(Deadline.after(SECONDS)))  # type: ignore[misc]
        except RemoteError as error:
            problems.append(str(error))
            continue
        refused += shapes.refused.values()
        for each in told:  # one process tells one tier; what is in two of them was copied
            known = found.get((each.host, each.process))
            if known is None or each.sequence > known.sequence:
                found[each.host, each.process] = each
    return list(found.values()), refused, problems


def _row(traffic: MethodTraffic, number: int | None, effort: int) -> tuple[MethodTraffic, Proposal | None, str]:
    try:
        return traffic, propose(traffic, number, effort), ""
    except GearSpecError as error:
        return traffic, None, str(error)


def _print(traffic: MethodTraffic, proposal: Proposal | None, problem: str, *, alike: Sequence[MethodTraffic]) -> None:
    name = traffic.method
    if any(each.full_name != traffic.full_name for each in alike):
        name += f" ({traffic.full_name or 'class not told'})"
    if any(each.full_name == traffic.full_name and each.gears != traffic.gears for each in alike):
        name += f" with {_sizes_now(traffic)}"
    echo(
        f"{name}: {count(traffic.calls, 'call')} of {count(len(traffic.shapes), 'shape')}, told by "
        f"{count(traffic.processes, 'process', 'processes')} of {count(len(traffic.hosts), 'host')}"
    )
    if proposal is None:
        echo(f"  {problem}")
        return
    if proposal.keeps:
        _print_kept(traffic, proposal)
        return
    for line in proposal.found.definitions:
        echo(f"  {line}")
    echo(f"  gears={proposal.found.gears!r}")
    for dim in proposal.found.open_dims:
        echo(f"  {dim} stays open: leave it as your code has it")
    echo(f"  {count(_product(proposal), 'gear')}, {proposal.found.padded:.1%} of the work is padding")
    if traffic.gears:
        text = f"  now: {count(len(traffic.gears), 'gear')}"
        if proposal.padded_now is not None and proposal.saved is not None:
            change = "less" if proposal.saved >= 0 else "more"
            text += (
                f", {proposal.padded_now:.1%} is padding; the proposed ones compute {abs(proposal.saved):.1%} {change}"
            )
        echo(text)
    if proposal.unserved:
        echo(f"  {count(proposal.unserved, 'call')} fit into no gear of today; all do into the proposed ones")
    if proposal.left_out:
        echo(f"  {count(proposal.left_out, 'call')} of rare shapes were left aside")


def _print_kept(traffic: MethodTraffic, proposal: Proposal) -> None:
    padding = f", {proposal.padded_now:.1%} is padding" if proposal.padded_now is not None else ""
    echo(f"  now: {count(len(traffic.gears), 'gear')}{padding}; keep them: no others were found that save anything")
    if proposal.left_out:
        echo(f"  {count(proposal.left_out, 'call')} of rare shapes were left aside")


def _sizes_now(traffic: MethodTraffic) -> str:
    """Return the gears of today: the sizes of each dim."""
    columns = [
        sorted({size for gear in traffic.gears if (size := gear[at]) is not None}) for at in range(len(traffic.dims))
    ]
    texts = [f"{path}.size({dim}): {row}" for (path, dim), row in zip(traffic.dims, columns, strict=True) if row]
    return f"gears {', '.join(texts)}" if texts else "no gears"


def _product(proposal: Proposal) -> int:
    number = 1
    for sizes in proposal.found.sizes.values():
        number *= len(sizes)
    return number


def _plain(traffic: MethodTraffic, proposal: Proposal | None, problem: str) -> dict[str, Any]:
    found = proposal.found if proposal is not None else None
    return {
        "method": traffic.method,
        "full_name": traffic.full_name,
        "dims": [f"{path}.size({dim})" for path, dim in traffic.dims],
        "calls": traffic.calls,
        "shapes": len(traffic.shapes),
        "processes": traffic.processes,
        "hosts": len(traffic.hosts),
        "gears_now": len(traffic.gears),
        "sizes_now": [list(gear) for gear in traffic.gears],
        "keeps": proposal is not None and proposal.keeps,
        "problem": problem,
        "proposed": None
        if proposal is None or found is None or proposal.keeps
        else {
            "gears": found.source,
            "open": list(found.open_dims),
            "sizes": [{"dim": dim, "sizes": sizes} for dim, sizes in found.sizes.items()],
            "number": _product(proposal),
            "padding": round(found.padded, 4),
            "padding_now": None if proposal.padded_now is None else round(proposal.padded_now, 4),
            "saved": None if proposal.saved is None else round(proposal.saved, 4),
            "unserved_now": proposal.unserved,
            "left_out": proposal.left_out,
        },
    }
