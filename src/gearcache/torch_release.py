"""Which releases of torch gearcache works with: it uses private names, which change from one to the next."""

from __future__ import annotations

import logging
import re

from gearcache.errors import MissingTorch, UnsupportedTorch

logger = logging.getLogger("gearcache")
#: Major and minor numbers of the releases that all tests have passed with; `setup.cfg` has them in the extra `torch`.
TESTED = ((2, 13), (2, 14))
TESTED_TEXT = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
#: What to install in place of a torch that cannot be used.
NEWEST = "{}.{}".format(*max(TESTED))
_OLDEST = min(TESTED)
#: Releases of which this process has warned.
_told: set[str] = set()


def require_torch() -> None:
    """Import torch; raises `MissingTorch` where there is none, and as `check_release` does."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # torch is there, and lacks something itself
            raise
        raise MissingTorch(TESTED_TEXT, NEWEST) from None
    check_release(str(torch.__version__))


def check_release(version: str) -> None:
    """Raise `UnsupportedTorch` for an older torch than any that was tested; warn, once, of another untested one.

    What such a release lacks is looked for by `gearcache.torch_names`, before anything is loaded or compiled.
    """
    found = _release(version)
    if found is None or found < _OLDEST:
        raise UnsupportedTorch(version, TESTED_TEXT, NEWEST)
    if found not in TESTED and version not in _told:
        _told.add(version)
        logger.warning(
            "gearcache is tested with torch %s, this is %s: the names that it uses are looked up first, and where one "
            "is missing the methods themselves answer",
            TESTED_TEXT,
            version,
        )


def is_tested(version: str) -> bool:
    """Whether a version of torch is of a release that all tests have passed with."""
    return _release(version) in TESTED


def _release(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return None if found is None else (int(found[1]), int(found[2]))
