"""Inductor: private names by which it writes and compiles code."""
