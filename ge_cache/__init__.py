"""Capture of methods, graphs of gears, and the graph-engine backends."""
