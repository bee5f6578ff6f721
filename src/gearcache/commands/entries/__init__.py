"""Commands on the entries of a cache."""
