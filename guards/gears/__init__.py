"""Gear specs: which sizes a method is compiled for."""
