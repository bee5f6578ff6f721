"""`python -m benchmarks.faults [WORD ...] [--suite]`: put each fault into a copy of the code, and run its tests.

Prints the first test that failed with each fault. The exit code is 1 if a fault was not caught, and 2 if a test fails
without any fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.faults.copied_tree import CopiedTree
from benchmarks.faults.every_fault import FAULTS, chosen

_WIDTH = 180


def main(arguments: list[str] | None = None) -> int:
    """Run the tests with each chosen fault."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="words of promises or files; without any, all faults")
    parser.add_argument("--suite", action="store_true", help="run the whole suite, and not only the named tests")
    options = parser.parse_args(arguments)
    numbers = chosen(options.words)
    if not numbers:
        parser.error(f"no promise and no file has one of the words {', '.join(options.words)}")
    faults = [FAULTS[number] for number in numbers]
    table = Table("promise", "caught by", "seconds")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="gearcache-faults-") as folder:
        tree = CopiedTree(Path(folder).resolve())
        every_test = [] if options.suite else sorted({test for fault in faults for test in fault.tests})
        without = tree.run(every_test, is_first_enough=options.suite)
        print(f"benchmarks: without a fault, {without.seconds:.0f} s", file=sys.stderr)
        if without.failed:
            print(without.output[-4000:], file=sys.stderr)
            print(f"benchmarks: `{without.failed}` fails without any fault", file=sys.stderr)
            return 2
        for place, fault in enumerate(faults, start=1):
            with tree.with_fault(fault):
                run = tree.run(() if options.suite else fault.tests)
            missed += not run.failed
            caught_by = run.failed or "NOT CAUGHT"
            print(f"benchmarks: {place} of {len(faults)}: {fault.promise}: {caught_by}", file=sys.stderr)
            table.add_row(fault.promise, escape(caught_by.removeprefix("tests/")), f"{run.seconds:.0f}")
    Console(width=_WIDTH).print(table)
    print(f"{len(faults) - missed} of {len(faults)} faults were caught")
    return min(1, missed)


if __name__ == "__main__":
    sys.exit(main())
