"""The process that runs cases: `python -m benchmarks.fuzz.varying.worker`, started by the campaign.

Part 0 draws the cases and runs all their launches. Of a case marked `new process` it runs only the first launch, and
part 1, another process, runs the others. It prints one line of JSON per case with the result.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from benchmarks.fuzz.case import Case, Failure, Report
from benchmarks.fuzz.varying.compose import NEW_PROCESS, draw_case
from benchmarks.fuzz.varying.run import run_launches


def main(order: dict[str, Any]) -> None:
    """Run the cases of an order."""
    sys.dont_write_bytecode = True
    _settle()
    folder, part = Path(order["folder"]), order["phase"]
    for count, index in enumerate(order["cases"]):
        _tell({"begin": index})
        case = _case(order, folder, index)
        if isinstance(case, Report):
            _tell({"case": index, "report": case.to_plain(), "features": []})
            continue
        own = folder / case.name
        own.mkdir(exist_ok=True)
        end = len(case.phases)
        is_split = NEW_PROCESS in case.features and end > 1
        numbers = range(part, 1 if part == 0 and is_split else end)
        count_peer = order["count_peer"] > 0 and index % order["count_peer"] == 0
        report = run_launches(case, numbers, own, count_peer=count_peer)
        goes_on = numbers.stop < end and report.failure is None and not report.invalid
        if part == 0 and not order.get("written") and (goes_on or report.failure is not None):
            (folder / f"{index}.json").write_text(case.to_text())
        if not goes_on:
            shutil.rmtree(own, ignore_errors=True)
        _tell({"case": index, "report": report.to_plain(), "goes_on": goes_on, "features": case.features})
        if count % 10 == 9 and "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        if count % 50 == 49:
            gc.collect()


def _settle() -> None:
    """Import what every case needs, and exclude it from garbage collection, which took a quarter of the time."""
    import torch._dynamo  # noqa: F401

    import gearcache.building.build  # noqa: F401

    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def _case(order: dict[str, Any], folder: Path, index: int) -> Case | Report:
    if order["phase"] > 0 or order.get("written"):
        return Case.from_text((folder / f"{index}.json").read_text())
    try:
        return draw_case(f"{order['seed']}:{index}", order["backend"])
    except Exception as error:
        text = traceback.format_exc()[-3000:]
        return Report(failure=Failure("generator", 0, -1, "", f"{type(error).__name__}: {error}", text=text))


def _tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.stdin.readline()))
