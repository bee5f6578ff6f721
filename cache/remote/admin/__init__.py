"""Administration of whole tiers for the commands (lists, pulls, pushes, pruning); no call of a method needs it."""
