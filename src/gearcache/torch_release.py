"""Which releases of torch gearcache works with: it uses private names, which change from one to the next."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gearcache.errors import MissingTorch, UnsupportedTorch

#: Major and minor numbers of the releases that all tests have passed with; `setup.cfg` has them in the extra `torch`.
TESTED = ((2, 13),)
TESTED_TEXT = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
ANY_TORCH_VARIABLE = "GEARCACHE_ANY_TORCH"


def require_torch() -> None:
    """Import torch; raises `MissingTorch` where there is none, and as `check_release` does."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # torch is there, and lacks something itself
            raise
        raise MissingTorch(TESTED_TEXT) from None
    check_release(str(torch.__version__))


def check_release(version: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raise `UnsupportedTorch` for a torch of another release, unless `$GEARCACHE_ANY_TORCH` is 1."""
    if not is_tested(version) and environ.get(ANY_TORCH_VARIABLE, "") in ("", "0"):
        raise UnsupportedTorch(version, TESTED_TEXT)


def is_tested(version: str) -> bool:
    """Whether a version of torch is of a release that all tests have passed with."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) in TESTED
