"""The commands of `gearcache`, one per file; each file defines a `command`."""
