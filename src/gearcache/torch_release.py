"""Which releases of torch gearcache works with: it uses private names, which change from one to the next."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gearcache.errors import UnsupportedTorch

#: Major and minor numbers of the releases that all tests have passed with, and what `setup.cfg` admits.
TESTED = ((2, 13),)
ANY_TORCH_VARIABLE = "GEARCACHE_ANY_TORCH"


def check_release(version: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raise `UnsupportedTorch` for a torch of another release, unless `$GEARCACHE_ANY_TORCH` is 1."""
    found = re.match(r"(\d+)\.(\d+)", version)
    release = (int(found[1]), int(found[2])) if found else None
    if release not in TESTED and environ.get(ANY_TORCH_VARIABLE, "") in ("", "0"):
        raise UnsupportedTorch(version, ", ".join(f"{major}.{minor}" for major, minor in TESTED))
