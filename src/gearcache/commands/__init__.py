"""The commands of `gearcache`, one a file; each file has its `command`."""
