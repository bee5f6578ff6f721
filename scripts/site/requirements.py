"""Prints the requirements of the extra `docs` in setup.cfg: pip would also install gearcache itself, and torch."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

config = ConfigParser(interpolation=None)
config.read(Path(__file__).resolve().parents[2] / "setup.cfg", encoding="utf-8")
print(config["options.extras_require"]["docs"])
