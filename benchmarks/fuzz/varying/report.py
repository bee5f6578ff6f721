"""Runs a campaign, and prints a table of sums, a line per finding, and the smallest case of each kind."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fuzz.campaign import Campaign, Found
from benchmarks.fuzz.case import Report
from benchmarks.fuzz.replay import script
from benchmarks.fuzz.report import keep, kept, shrunk, write
from benchmarks.fuzz.varying.replay import run_only

REPLAYS = "benchmarks.fuzz.varying.replay"
#: Kinds of findings that do not concern the result of a call.
_OTHER = ("graphs", "traced again", "error", "raw error", "not raised", "hang", "crash", "harness", "generator")


@dataclass
class VaryingCampaign(Campaign):
    """The sums of a run."""

    worker: str = "benchmarks.fuzz.varying.worker"
    sums: Counter[str] = field(default_factory=Counter)

    def _count(self, report: Report, phase: int, features: list[str]) -> None:
        self.cases += phase == 0
        self.calls += report.calls
        self.raised += report.raised
        self.sums.update(report.events)
        self.features.update(features if phase == 0 else [])
        if report.invalid:
            self.invalid[report.invalid] += 1


def fuzz_varying(given: argparse.Namespace) -> int:
    """Run the cases, print sums and findings; 1 if something was found."""
    if given.only is not None:
        return run_only(given.seed, given.only, given.backend)
    campaign = VaryingCampaign(given.seed, given.backend, more={"count_peer": given.count_peer})
    numbers: Sequence[int] = range(given.first, given.first + given.cases)
    if given.again:
        campaign.written = kept(Path(given.again))
        numbers = sorted(campaign.written)
    campaign.run(numbers, minutes=given.minutes, processes=given.processes)
    campaign.found.sort(key=lambda found: found.index)
    out = Path(given.out) if given.out else None
    if out is not None:
        keep(campaign, out)
    _print_sums(campaign)
    groups: dict[str, list[Found]] = defaultdict(list)
    for found in campaign.found:
        print(f"case {campaign.seed}:{found.index}: {_group(found)}: {_sides(found)}")
        groups[_group(found)].append(found)
        if out is not None and found.case is not None:
            write(out, f"case-{found.index}-{_group(found)}", _script(found))
    if not given.no_shrink:
        small = {name: members for name, members in groups.items() if members[0].failure.kind not in ("graphs", "hang")}
        groups = {name: members for name, members in groups.items() if name not in small} | shrunk(
            small, out, "benchmarks.fuzz.varying.shrink", REPLAYS
        )
    for name, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        _print_group(name, members)
    failed = [found for found in campaign.found if found.failure.kind != "graphs" or given.strict_graphs]
    return min(1, len(failed))


def _group(found: Found) -> str:
    """Return a value that is equal for similar findings."""
    failure = found.failure
    is_value = failure.kind not in _OTHER and found.case is not None
    options = [item for item in found.case.features if item.startswith(("dynamic", "gears"))] if is_value else []
    return " | ".join([failure.signature(), *options])


def _sides(found: Found) -> str:
    """Return the two sides of a difference, or the last line of an error."""
    return (found.failure.text.strip().splitlines() or [""])[-1][:200]


def _script(found: Found) -> str:
    assert found.case is not None
    return script(found.case, found.failure, found.failure.text.splitlines()[-3:], REPLAYS)


def _print_group(name: str, members: list[Found]) -> None:
    best = min(members, key=lambda found: len(found.case.to_text()) if found.case else 1 << 30)
    print(f"\n{'=' * 100}\n{len(members)} x {name}\n   cases {sorted(found.index for found in members)[:12]}")
    print(best.failure.text if best.case is None else _script(best))


def _print_sums(campaign: VaryingCampaign) -> None:
    kinds = Counter(found.failure.kind for found in campaign.found)
    sums = campaign.sums
    rows = [
        ("cases", campaign.cases),
        ("calls", campaign.calls),
        ("raised by both", campaign.raised),
        ("as torch.compile, not as eager", sums["differs from eager as torch.compile does"]),
        ("refused outside gears", sums["outside gears"]),
        ("differing", sum(number for kind, number in kinds.items() if kind not in _OTHER)),
        ("errors", kinds["error"] + kinds["raw error"]),
        ("not raised", kinds["not raised"]),
        ("traced again", kinds["traced again"]),
        ("crashes, hangs, own faults", sum(kinds[kind] for kind in ("crash", "hang", "harness", "generator"))),
        ("traces", sums["trace"]),
        ("graphs stored", sums["graphs"]),
        ("cases compared with torch.compile", sums["cases compared"]),
        ("   graphs ours / torch.compile", f"{sums['graphs, compared']} / {sums['graphs of torch.compile']}"),
        ("   cases with more graphs", kinds["graphs"]),
        ("   refused by torch.compile", sums["refused by torch.compile"]),
    ]
    width = max(len(title) for title, _ in rows)
    for title, number in rows:
        print(f"{title:<{width}}  {number}")
    print(f"{campaign.seconds:.0f} s, {campaign.seconds / max(1, campaign.cases):.3f} s a case")
    for text, number in campaign.invalid.most_common(10):
        print(f"no case: {number} x {text}")
