"""`python -m benchmarks.fuzz manifest [N]`, `modules --cases N --seed S ...`, `varying ...`, `put-back [BUG ...]`."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Run one of the fuzzers; the exit code is 1 if it found something."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    manifest = kinds.add_parser("manifest", help="hostile bytes for the decoder of manifests")
    manifest.add_argument("inputs", type=int, nargs="?", default=1_000_000)
    _add_campaign(kinds.add_parser("modules", help="random modules, cached beside eager"))
    varying = kinds.add_parser("varying", help="sizes and ints that change from call to call, cached beside eager")
    _add_campaign(varying)
    varying.add_argument("--only", type=int, default=None, help="run this case alone, and say what each call gives")
    varying.add_argument("--count-peer", type=int, default=5, help="count the graphs of torch.compile of each Nth case")
    varying.add_argument("--strict-graphs", action="store_true", help="more graphs than torch.compile are a failure")
    bugs = kinds.add_parser("put-back", help="how many cases it takes to find each bug that was mended")
    bugs.add_argument("bugs", nargs="*", help="words of their names; all without any")
    bugs.add_argument("--cases", type=int, default=2000)
    bugs.add_argument("--seed", default="1")
    bugs.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    if given.kind == "manifest":
        from benchmarks.fuzz.manifest import main as fuzz_manifest

        return min(1, fuzz_manifest(given.inputs))
    if given.kind == "put-back":
        from benchmarks.fuzz.put_back import main as find_bugs

        return find_bugs(given)
    if given.kind == "varying":
        from benchmarks.fuzz.varying.report import fuzz_varying

        return fuzz_varying(given)
    from benchmarks.fuzz.report import fuzz_modules

    return fuzz_modules(given)


def _add_campaign(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--backend", choices=("eager", "inductor"), default="eager")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--out", default=None, help="folder for the reproducers")
    parser.add_argument("--again", default=None, help="folder of an earlier run: run what failed there again")
    parser.add_argument("--no-shrink", action="store_true")


if __name__ == "__main__":
    sys.exit(main())
