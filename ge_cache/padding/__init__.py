"""Padding: the proof that calls between gears may be padded."""
