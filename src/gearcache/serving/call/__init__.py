"""A cached method and one call of it: arguments, state, and what is resolved at the first call."""
