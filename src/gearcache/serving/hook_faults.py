"""Faults of what gearcache hooks into Dynamo, on a release of torch that was not tested: the method itself answers.

A hook may be called with other arguments than it takes, or find that an attribute has another name. On a tested release
such an error says that the method cannot be traced, and is raised; on another one it says nothing of the method.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from gearcache.errors import CaptureError
from gearcache.torch_release import is_tested

#: Also where it is reached through a symlink.
_FOLDERS = (Path(__file__).parents[1] / "ge_cache", (Path(__file__).parents[1] / "ge_cache").resolve())
_KINDS = (AssertionError, AttributeError, KeyError, NameError, NotImplementedError, TypeError)


def is_hook_fault(error: CaptureError) -> bool:
    """Whether a trace ended in an error that a hook has raised, with a torch that was not tested."""
    if is_tested(str(torch.__version__)):
        return False
    found: BaseException | None = error.__cause__
    while found is not None:
        frames = traceback.extract_tb(found.__traceback__)
        if isinstance(found, _KINDS) and frames and any(map(Path(frames[-1].filename).is_relative_to, _FOLDERS)):
            return True
        found = found.__cause__ or found.__context__
    return False
