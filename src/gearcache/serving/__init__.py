"""The path of a call: from its arguments to the graph that serves it."""
