"""Proof that calls between gears may be padded."""
