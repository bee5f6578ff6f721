"""Compiles in worker processes."""
