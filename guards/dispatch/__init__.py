"""Dispatch of a call: checks, the stored frame, the graph and its results, as generated functions."""
