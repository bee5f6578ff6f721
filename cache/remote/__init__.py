"""Tiers beyond this host: entries and blobs stored by other hosts. Imported after a local miss only."""
