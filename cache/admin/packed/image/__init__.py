"""Entries as a container image, in a folder of the OCI image layout."""
