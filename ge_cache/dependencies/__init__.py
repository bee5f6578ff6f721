"""What a trace took from the process beside its guards, as checks or refusals."""
