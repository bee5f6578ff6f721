"""Gear specs: the sizes for which a method is compiled."""
