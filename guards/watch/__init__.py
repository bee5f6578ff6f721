"""Whether what a loaded graph was built on is still as it was: asked before every call."""
