"""Probes that each turn has in place: what it traces, records and compiles in this process goes by real tensors."""
