"""Unexpected exceptions on the way from a call to its graph: none of them breaks the model, unless `strict`."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import torch

from gearcache.errors import MissingTorchNames, PreparationError
from gearcache.serving.host_faults import host_remedy
from gearcache.serving.parameters import Parameters
from gearcache.torch_release import NEWEST, TESTED_TEXT, is_tested

logger = logging.getLogger("gearcache")
#: After so many in a row a method runs uncached at once: each attempt may take as long as a compile.
_MANY = 3
_FOLDER = Path(__file__).parent
#: Names of torch of which this process has told that they are missing.
_told: set[tuple[str, ...]] = set()


class Failures:
    """The unexpected exceptions of one cached method since a call was last prepared."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self._told: set[str] = set()

    @property
    def are_many(self) -> bool:
        """Whether it is no use to try again before a `refresh`."""
        return self._count >= _MANY

    def clear(self) -> None:
        """Start anew."""
        self._count = 0

    def add(self, error: Exception, parameters: Parameters) -> None:
        """Warn of an exception, once for each; raises `PreparationError` where the options want that."""
        cause = f"{type(error).__name__}: {error}"
        failure = PreparationError(self._name, cause, _place(error), host_remedy(error) or _release_remedy())
        if parameters.settings().strict:
            raise failure from error
        self._count += 1
        if cause not in self._told:
            self._told.add(cause)
            logger.warning("%s", failure, exc_info=None if failure.remedy else error)


def warn_lacking(error: MissingTorchNames) -> None:
    """Say, once in a process, which names this torch lacks, so that methods themselves answer."""
    if error.names not in _told:
        _told.add(error.names)
        logger.warning("no graph is made or loaded, the methods themselves answer: %s", error)


def _release_remedy() -> str:
    """Return what to do where torch is of a release that was not tested; else ""."""
    version = str(torch.__version__)
    if is_tested(version):
        return ""
    return f"gearcache is tested with torch {TESTED_TEXT}, this is {version}: install `torch=={NEWEST}.*`"


def _place(error: Exception) -> str:
    """Return the innermost function of gearcache's own that an exception went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_FOLDER)]
    return f"`{own[-1].name}`, {Path(own[-1].filename).name}:{own[-1].lineno}" if own else "gearcache"
