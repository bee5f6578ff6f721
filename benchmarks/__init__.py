"""Measures start-up, calls and memory of gearcache beside torch.compile; `python -m benchmarks` prints one table."""
