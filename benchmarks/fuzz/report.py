"""Runs a campaign, shrinks its findings, and prints each finding once, with a program that shows it."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.fuzz.campaign import LIMIT, ROOT, Campaign, Found, Silence
from benchmarks.fuzz.case import Case, Failure
from benchmarks.fuzz.replay import script

#: Seconds for shrinking one case, and how many cases of one coarse signature are shrunk.
PATIENCE = 30.0
EACH = 1


def fuzz_modules(given: argparse.Namespace) -> int:
    """Run the cases, print sums and findings; 1 if something was found."""
    campaign = Campaign(given.seed, given.backend)
    numbers: Sequence[int] = range(given.first, given.first + given.cases)
    if given.again:
        campaign.written = kept(Path(given.again))
        numbers = sorted(campaign.written)
    campaign.run(numbers, minutes=given.minutes, processes=given.processes)
    print_sums(campaign)
    if given.out:
        keep(campaign, Path(given.out))
    groups: dict[str, list[Found]] = defaultdict(list)
    for found in sorted(campaign.found, key=lambda found: found.index):
        groups[coarse(found)].append(found)
    if not given.no_shrink:
        groups = shrunk(groups, Path(given.out) if given.out else None)
    for signature, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        _print(signature, members)
    return min(1, len(campaign.found))


def keep(campaign: Campaign, out: Path) -> None:
    """Write every failure with its case, one per line."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "found.jsonl").open("w") as file:
        for found in campaign.found:
            case = found.case.to_text() if found.case else None
            file.write(json.dumps({"index": found.index, "failure": found.failure.__dict__, "case": case}) + "\n")


def kept(folder: Path) -> dict[int, Case]:
    """Return the cases that an earlier run kept."""
    lines = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    return {line["index"]: Case.from_text(line["case"]) for line in lines if line["case"]}


def coarse(found: Found) -> str:
    """Return a value that is equal for findings that are probably the same: errors by place, differences by edits."""
    failure = found.failure
    if failure.where or found.case is None:
        return failure.signature()
    phase = found.case.phases[failure.phase]
    edits = [step.label for step in phase.steps[: failure.step] if step.label not in ("build", "call", "arguments")]
    about = edits[-1:] or found.case.features
    return " | ".join([failure.signature(), *about, f"process {failure.phase + 1}"])


def fine(case: Case, failure: Failure, *, heals: bool, alone: bool) -> str:
    """Return the signature of a shrunk case: its remaining features and edits."""
    parts = [failure.signature()]
    if not failure.where:
        parts += [", ".join([*case.present(), *case.edits()]), f"process {failure.phase + 1}"]
    if heals:
        parts.append("not after refresh()")
    if not alone:
        parts.append("only after other cases")
    return " | ".join(parts)


def shrunk(
    groups: dict[str, list[Found]],
    out: Path | None,
    worker: str = "benchmarks.fuzz.shrink",
    replays: str = "benchmarks.fuzz.replay",
) -> dict[str, list[Found]]:
    """Shrink the first case of each group, in a process that runs `worker`."""
    environ = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", worker],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=environ,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    small: dict[str, list[Found]] = defaultdict(list)
    for signature, members in groups.items():
        names = []
        for found in members[:EACH]:
            if found.case is None:
                small[signature].append(found)
                names.append(signature)
                continue
            order = {"case": found.case.to_text(), "failure": found.failure.__dict__, "seconds": PATIENCE}
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            line = next(Silence(LIMIT[found.case.backend] + 2 * PATIENCE).lines(process), "")
            if not line:
                return groups
            told = json.loads(line)
            case, failure = Case.from_text(told["case"]), Failure(**told["failure"])
            name = fine(case, failure, heals=told["heals"], alone=told["alone"])
            small[name].append(replace(found, case=case, failure=failure))
            names.append(name)
            print(f"  made small: {name}", file=sys.stderr, flush=True)
            if out is not None:
                text = script(case, failure, failure.text.splitlines()[-3:], replays)
                write(out, f"{found.index}-{name}", text)
        small[names[0]] += members[EACH:]
    process.stdin.close()
    process.wait()
    return small


def _print(signature: str, members: list[Found]) -> None:
    members = sorted(members, key=lambda found: len(found.case.to_text()) if found.case else 1 << 30)
    best = members[0]
    seeds = sorted(found.index for found in members)
    print(f"\n{'=' * 100}\n{len(members)} x {signature}\n   cases {seeds[:12]}")
    if best.case is None:
        print(best.failure.text)
        return
    text = script(best.case, best.failure, [f"seen in cases {seeds[:12]}", *best.failure.text.splitlines()[-3:]])
    print(text)


def write(out: Path, name: str, text: str) -> None:
    name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:100]
    (out / f"{name}.py").write_text(text)


def print_sums(campaign: Campaign) -> None:
    """Print counts: cases, calls, refusals by reason, events."""
    print(campaign.line(), f"in {campaign.seconds:.0f} s, {campaign.seconds / max(1, campaign.cases):.3f} s a case")
    for title, counts in (
        ("events", campaign.events),
        ("refused", campaign.refusals),
        ("known", campaign.known),
        ("no case", campaign.invalid),
    ):
        for text, number in counts.most_common(60):
            print(f"  {title}: {number} x {text}")
