"""`gearcache suggest-gears`: proposes gears from the recorded shapes of calls."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from gearcache.commands.common import Exit, common_options, count, print_json, stop, warn
from gearcache.commands.output.printing import echo, note
from gearcache.errors import GearSpecError
from gearcache.guards.gears.symbol import MAX_GEARS
from gearcache.telemetry.fleet_gears import MethodTraffic, Proposal, propose, summed
from gearcache.telemetry.method_shapes import MethodShapes, read_shapes


@click.command("suggest-gears")
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE...")
@click.option("--method", metavar="PATTERN", help="Only methods of this name, as `Model.*`, or `module.Class.*`.")
@click.option(
    "--gears", "number", type=click.IntRange(1, MAX_GEARS), help="At most so many; else as many as the method has now."
)
@common_options
def command(
    files: tuple[str, ...], method: str | None, number: int | None, cache_dir: Path | None, as_json: bool
) -> None:
    """Propose gears for the next release, from the shapes that processes have met.

    FILE is JSON that holds what `.stats.to_dict()` of cached methods says, of one process or several, in any form;
    `-` is stdin. Exit code 1 when a file cannot be read, or says nothing of the method.
    """
    method_shapes: list[MethodShapes] = []
    problems: list[str] = []
    for name in files:
        try:
            method_shapes += _read(name)
        except OSError as error:
            problems.append(f"`{name}` cannot be read: {error.strerror or error}")
        except (ValueError, RecursionError) as error:
            problems.append(f"`{name}` holds no statistics: {error}")
    traffic = [
        row
        for row in summed(method_shapes)
        if row.calls and (method is None or fnmatchcase(row.method, method) or fnmatchcase(row.full_name, method))
    ]
    rows = [_row(each, number) for each in traffic]
    if as_json:
        print_json("suggest-gears", {"methods": [_plain(*row) for row in rows], "problems": problems})
    else:
        for row in rows:
            _print(*row)
    for problem in problems:
        warn(problem)
    if not rows:
        note(f"no calls{f' of `{method}`' if method is not None else ''} in {', '.join(files)}")
    if problems or not rows:
        stop(Exit.WRONG)


def _read(name: str) -> list[MethodShapes]:
    """Return the content of a file: one JSON document, or one per line."""
    with click.open_file(name, encoding="utf-8") as file:
        text = file.read()
    try:
        return list(read_shapes(json.loads(text)))
    except json.JSONDecodeError:
        lines = [line for line in text.splitlines() if line.strip()]
        return [each for line in lines for each in read_shapes(json.loads(line))]


def _row(traffic: MethodTraffic, number: int | None) -> tuple[MethodTraffic, Proposal | None, str]:
    try:
        return traffic, propose(traffic, number), ""
    except GearSpecError as error:
        return traffic, None, str(error)


def _print(traffic: MethodTraffic, proposal: Proposal | None, problem: str) -> None:
    shapes, processes = count(len(traffic.shapes), "shape"), count(traffic.processes, "process", "processes")
    echo(f"{traffic.full_name or traffic.method}: {count(traffic.calls, 'call')} of {shapes} in {processes}")
    if proposal is None:
        echo(f"  {problem}")
        return
    now = count(len(traffic.gears), "gear")
    if proposal.padded_now is not None:
        now += f", {proposal.padded_now:.1%} is padding"
    if proposal.keeps:
        echo(f"  now: {now}; keep them: no others were found that save anything")
    else:
        suggestion = proposal.suggestion
        echo(*(f"  {line}" for line in suggestion.definitions), f"  gears={suggestion.gears!r}")
        for dim in suggestion.open_dims:
            echo(f"  {dim} stays open: leave it as your code has it")
        echo(f"  {count(suggestion.number, 'gear')}, {suggestion.padded:.1%} of the work is padding")
        if proposal.saved is not None:
            now += f"; the proposed ones compute {abs(proposal.saved):.1%} {'less' if proposal.saved >= 0 else 'more'}"
        if traffic.gears:
            echo(f"  now: {now}")
    if proposal.unserved:
        echo(f"  {count(proposal.unserved, 'call')} fit into no gear of today; all do into the proposed ones")
    if proposal.left_out:
        echo(f"  {count(proposal.left_out, 'call')} of rare shapes were left aside")


def _plain(traffic: MethodTraffic, proposal: Proposal | None, problem: str) -> dict[str, Any]:
    size_lists = proposal.suggestion if proposal is not None else None
    return {
        "method": traffic.method,
        "full_name": traffic.full_name,
        "dims": [f"{path}.size({dim})" for path, dim in traffic.dims],
        "calls": traffic.calls,
        "shapes": len(traffic.shapes),
        "processes": traffic.processes,
        "gears_now": len(traffic.gears),
        "sizes_now": [list(gear) for gear in traffic.gears],
        "keeps": proposal is not None and proposal.keeps,
        "problem": problem,
        "proposed": None
        if proposal is None or size_lists is None or proposal.keeps
        else {
            "gears": size_lists.source,
            "open": list(size_lists.open_dims),
            "sizes": [{"dim": dim, "sizes": sizes} for dim, sizes in size_lists.sizes.items()],
            "number": size_lists.number,
            "padding": round(size_lists.padded, 4),
            "padding_now": None if proposal.padded_now is None else round(proposal.padded_now, 4),
            "saved": None if proposal.saved is None else round(proposal.saved, 4),
            "unserved_now": proposal.unserved,
            "left_out": proposal.left_out,
        },
    }
