"""Commands on what a deployment calls."""
