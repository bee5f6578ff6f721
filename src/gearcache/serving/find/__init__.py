"""From a call to the graph that serves it: bindings, stored and loaded variants."""
