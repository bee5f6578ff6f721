"""The process that runs cases: `python -m benchmarks.fuzz.worker`, started by `campaign.py`.

Phase 0 draws the cases and stores those that continue in another process in the folder, where later phases find them.
It prints one line of JSON per case with the result, and a line before it when the case begins.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.fuzz.case import Case, Failure, Report
from benchmarks.fuzz.compose import draw_case
from benchmarks.fuzz.known import excuse
from benchmarks.fuzz.put_back import put_back
from benchmarks.fuzz.run_case import run_phase


def main(order: dict[str, Any]) -> None:
    """Run the cases of an order."""
    sys.dont_write_bytecode = True
    folder = Path(order["folder"])
    if order.get("bug"):
        put_back(order["bug"])
    for index in order["cases"]:
        _tell({"begin": index})
        case = _case(order, folder, index)
        if isinstance(case, Report):
            _tell({"case": index, "report": case.to_plain(), "features": []})
            continue
        own = folder / case.name
        own.mkdir(exist_ok=True)
        report = _excused(case, order["phase"], own, run_phase(case, order["phase"], own))
        over = report.failure is not None or report.invalid or report.known
        goes_on = len(case.phases) > order["phase"] + 1 and not over
        if order["phase"] == 0 and not order.get("written") and (goes_on or report.failure is not None):
            (folder / f"{index}.json").write_text(case.to_text())
        if not goes_on:
            shutil.rmtree(own, ignore_errors=True)
        _tell({"case": index, "report": report.to_plain(), "goes_on": goes_on, "features": case.labels()})
        _forget()


def _excused(case: Case, number: int, folder: Path, report: Report) -> Report:
    """Turn a failure into a known deviation if a sentence documents it and `.refresh()` removes it."""
    sentence = excuse(case, report.failure) if report.failure is not None else ""
    if sentence and run_phase(replace(case, refreshed=True), number, folder).failure is None:
        report.failure, report.known = None, sentence
    return report


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


_count = 0


def _forget() -> None:
    """Release what a case left behind in Dynamo, and collect garbage now and then."""
    global _count
    _count += 1
    if _count % 10 == 0 and "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if _count % 50 == 0:
        gc.collect()


if __name__ == "__main__":
    main(json.loads(sys.stdin.readline()))
