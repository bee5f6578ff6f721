"""Entries as an image of containers, in a folder of the OCI image layout."""
