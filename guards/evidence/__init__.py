"""Evidence: the facts that a trace depends on, as plain data that is checked when an entry is loaded."""
