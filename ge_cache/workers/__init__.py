"""Compile in worker processes."""
