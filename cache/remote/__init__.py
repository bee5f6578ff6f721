"""Tiers beyond this host: entries and blobs that other hosts have stored. Imported after a local miss only."""
