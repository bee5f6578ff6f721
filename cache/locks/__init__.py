"""Locks, marks of use, and how long to wait for them."""
