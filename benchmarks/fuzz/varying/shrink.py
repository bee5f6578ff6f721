"""The process that shrinks cases: `python -m benchmarks.fuzz.varying.shrink`."""

from __future__ import annotations

from benchmarks.fuzz.shrink import main
from benchmarks.fuzz.varying.replay import forked, forked_each

if __name__ == "__main__":
    main((forked, forked_each))
