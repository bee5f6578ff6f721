"""Reports unexpected exceptions while a call is prepared: none of them breaks the model, unless `strict`.

A hit does not import this.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import torch

from gearcache.errors import CaptureError, MissingTorchNames, PreparationError
from gearcache.torch_release import NEWEST, TESTED_TEXT, is_tested

logger = logging.getLogger("gearcache")
_FOLDER = Path(__file__).parents[1]
#: What a probe raises that does not suit a release of torch.
_KINDS = (AssertionError, AttributeError, KeyError, NameError, NotImplementedError, TypeError)
#: Missing names of torch that this process has warned about.
_warned_names: set[tuple[str, ...]] = set()


def report_failure(method: str, error: Exception, known_causes: set[str], *, strict: bool) -> None:
    """Warn about an exception, once for each cause; raises `PreparationError` if the options are strict."""
    from gearcache.serving.miss.host_faults import host_remedy

    cause = f"{type(error).__name__}: {error}"
    failure = PreparationError(method, cause, _place(error), host_remedy(error) or _release_remedy())
    if strict:
        raise failure from error
    if cause not in known_causes:
        known_causes.add(cause)
        logger.warning("%s", failure, exc_info=None if failure.remedy else error)


def warn_lacking(error: MissingTorchNames) -> None:
    """Warn, once in a process, about the names that this torch lacks, for which methods themselves serve."""
    if error.names not in _warned_names:
        _warned_names.add(error.names)
        logger.warning("no graph is made or loaded, the methods themselves answer: %s", error)


def _release_remedy() -> str:
    """Return what to do if the release of torch was not tested; else ""."""
    version = str(torch.__version__)
    if is_tested(version):
        return ""
    return f"gearcache is tested with torch {TESTED_TEXT}, this is {version}: install `torch=={NEWEST}.*`"


def _place(error: Exception) -> str:
    """Return the innermost function of gearcache that an exception went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_FOLDER)]
    return f"`{own[-1].name}`, {Path(own[-1].filename).name}:{own[-1].lineno}" if own else "gearcache"


def is_probe_fault(error: CaptureError) -> bool:
    """Whether a probe raised the error that ended a trace, on a torch that was not tested.

    It may be called with unexpected arguments, or find that an attribute was renamed: on an untested release that says
    nothing about the method.
    """
    if is_tested(str(torch.__version__)):
        return False
    folder = Path(__file__).parents[2] / "ge_cache"
    folders = (folder, folder.resolve())  # it is a symlink
    cause: BaseException | None = error.__cause__
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        if isinstance(cause, _KINDS) and frames and any(map(Path(frames[-1].filename).is_relative_to, folders)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
