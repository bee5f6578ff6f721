"""Administration of a cache for the commands (lists, limits, verification, bundles); no call of a method needs it."""
