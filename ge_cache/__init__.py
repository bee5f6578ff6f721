"""Capture, gear graphs and the graph-engine backends."""
