"""The ranks of a job that agree on what they serve, before the first collective."""
