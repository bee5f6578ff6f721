"""Tiers in commands: which are used, what they hold, pruning."""
