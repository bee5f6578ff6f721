"""Cached methods and models for other runtimes."""
