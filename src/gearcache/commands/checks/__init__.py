"""The checks of `gearcache doctor`."""
