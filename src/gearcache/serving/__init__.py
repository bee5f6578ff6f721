"""The life of a call: from arguments to the graph that serves them."""
