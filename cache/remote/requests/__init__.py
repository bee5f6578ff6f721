"""Requests to a tier: several at once, abandoned at a deadline."""
