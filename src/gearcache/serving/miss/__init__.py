"""A call without a graph: the decision about it, padding, copies, builds."""
