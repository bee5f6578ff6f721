"""Signatures of manifests, and the keys that this host trusts."""
