"""The `torchair` backend."""
