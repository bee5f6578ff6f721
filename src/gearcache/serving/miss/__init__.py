"""A call without a graph: the decision about it, padding, builds."""
