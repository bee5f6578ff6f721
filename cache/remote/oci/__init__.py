"""Entries as images of containers: in a folder, in a registry, and as a tier `oci:` that is only read."""
