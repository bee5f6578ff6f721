"""Faults that are put into the code on purpose, one for each promise of the docs: the tests must catch each of them."""
