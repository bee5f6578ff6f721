"""Requests to a tier: several at once, tried again where they failed for a moment, abandoned at a deadline."""
