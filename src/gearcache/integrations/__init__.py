"""Integrations with other libraries, one line of code each; a library is only imported in its own folder or file."""
