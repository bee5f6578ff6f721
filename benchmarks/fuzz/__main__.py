"""`python -m benchmarks.fuzz manifest [N]`, `modules --cases N --seed S ...` and `put-back [BUG ...]`."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Run one of the fuzzers; the exit code is 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    manifest = kinds.add_parser("manifest", help="hostile bytes for the decoder of manifests")
    manifest.add_argument("inputs", type=int, nargs="?", default=1_000_000)
    modules = kinds.add_parser("modules", help="random modules, cached beside eager")
    modules.add_argument("--cases", type=int, default=1000)
    modules.add_argument("--first", type=int, default=0, help="number of the first case")
    modules.add_argument("--seed", default="1")
    modules.add_argument("--backend", choices=("eager", "inductor"), default="eager")
    modules.add_argument("--processes", type=int, default=1)
    modules.add_argument("--minutes", type=float, default=None)
    modules.add_argument("--out", default=None, help="folder for the reproducers")
    modules.add_argument("--again", default=None, help="folder of an earlier run: run what failed there again")
    modules.add_argument("--no-shrink", action="store_true")
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
    from benchmarks.fuzz.report import fuzz_modules

    return fuzz_modules(given)


if __name__ == "__main__":
    sys.exit(main())
