"""Private names of torch used by tracing and compiling; each name has a test."""
