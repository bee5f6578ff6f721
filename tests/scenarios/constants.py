"""Constants that another module's methods read."""

OFFSET = 0.5
