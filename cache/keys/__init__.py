"""Keys: what identifies an entry, and how two of them differ."""
