"""A build among other hosts and ranks: tiers, turns, adoption, and who may compile."""
