"""Graphs: from a capture to the ATen graphs of its gears."""
