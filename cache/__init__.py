"""Keys, entries, bytes and paths; imports no torch (only `fingerprint` does)."""
