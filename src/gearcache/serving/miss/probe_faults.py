"""Recognises errors of gearcache's probes in Dynamo on an untested release of torch: the method itself then serves.

A probe may be called with unexpected arguments, or find that an attribute was renamed. On a tested release such an
error means that the method cannot be traced, and is raised; on an untested one it means nothing about the method.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from gearcache.errors import CaptureError
from gearcache.torch_release import is_tested

#: Also under a symlink.
_FOLDERS = (Path(__file__).parents[2] / "ge_cache", (Path(__file__).parents[2] / "ge_cache").resolve())
_KINDS = (AssertionError, AttributeError, KeyError, NameError, NotImplementedError, TypeError)


def is_probe_fault(error: CaptureError) -> bool:
    """Whether a probe raised the error that ended a trace, on a torch that was not tested."""
    if is_tested(str(torch.__version__)):
        return False
    cause: BaseException | None = error.__cause__
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        if isinstance(cause, _KINDS) and frames and any(map(Path(frames[-1].filename).is_relative_to, _FOLDERS)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
