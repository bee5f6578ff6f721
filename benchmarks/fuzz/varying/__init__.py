"""Cases whose sizes and ints change from call to call: `python -m benchmarks.fuzz varying`, `docs/fuzzing.md`."""
