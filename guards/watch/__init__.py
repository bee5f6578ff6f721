"""The watch: before every call, check that what a loaded graph depends on has not changed."""
