"""Exports cached methods and models for other runtimes."""
