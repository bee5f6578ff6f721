"""Commands that say what a cache has saved, and what was called."""
