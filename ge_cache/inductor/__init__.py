"""The `inductor` backend."""
