"""Which releases of torch gearcache works with: it uses private names, which change between releases."""

from __future__ import annotations

import logging
import re

from gearcache.errors import MissingTorch, UnsupportedTorch

logger = logging.getLogger("gearcache")
#: Major and minor numbers of the releases that all tests have passed with; `setup.cfg` has them in the extra `torch`.
TESTED = ((2, 13), (2, 14), (2, 15))
TESTED_TEXT = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
#: The release to install instead of an unusable torch.
NEWEST = "{}.{}".format(*max(TESTED))
_OLDEST = min(TESTED)
#: Releases that this process has warned about.
_warned: set[str] = set()


def require_torch() -> None:
    """Import torch; raise `MissingTorch` if it is not installed, or what `check_release` raises."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # torch is there, and lacks something itself
            raise
        raise MissingTorch(TESTED_TEXT, NEWEST) from None
    check_release(str(torch.__version__))


def check_release(version: str) -> None:
    """Raise `UnsupportedTorch` for a torch older than all tested ones; warn once of a newer untested one.

    `gearcache.torch_names` looks for missing names, before anything is loaded or compiled.
    """
    release = _release(version)
    if release is None or release < _OLDEST:
        raise UnsupportedTorch(version, TESTED_TEXT, NEWEST)
    if release not in TESTED and version not in _warned:
        _warned.add(version)
        logger.warning(
            "gearcache is tested with torch %s, this is %s: the names that it uses are looked up first, and where one "
            "is missing the methods themselves answer",
            TESTED_TEXT,
            version,
        )


def is_tested(version: str) -> bool:
    """Whether all tests have passed with the release of this version of torch."""
    return _release(version) in TESTED


def _release(version: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return None if match is None else (int(match[1]), int(match[2]))
