"""Entries packed for other hosts: bundles, folders and images, with every byte verified."""
