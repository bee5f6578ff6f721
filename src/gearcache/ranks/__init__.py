"""Makes the ranks of a job agree on the graphs that they serve, before the first collective."""
