"""What the commands need and no call does: lists, limits, verification, bundles."""
