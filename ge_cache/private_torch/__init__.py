"""Every private name of torch that tracing and compiling use; one test per name."""
