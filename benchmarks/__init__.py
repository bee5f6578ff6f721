"""Start-up, call and memory figures of gearcache beside torch.compile's; `python -m benchmarks` prints one table."""
