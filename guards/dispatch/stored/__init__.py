"""Variants as an entry stores them."""
