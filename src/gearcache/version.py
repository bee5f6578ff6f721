"""The version; read here by the package, by `setup.cfg` and by every key."""

__version__ = "0.1.0"
