"""The `torchair` backend, for Ascend NPUs."""
