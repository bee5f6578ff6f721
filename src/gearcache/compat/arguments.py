"""Checks of arguments that the `cache_compile` of torchair and of npugraph_ex share, with their error messages."""

from __future__ import annotations

import os
import types
from typing import Any

import torch


def check_method(func: Any) -> None:
    """Raise `ValueError` for anything but a bound method of an `nn.Module`."""
    if not isinstance(func, types.MethodType):
        raise ValueError(f"Only method can be cached now, got {func}")
    if not isinstance(func.__self__, torch.nn.Module):
        raise ValueError(f"Only torch.nn.Module method can be cached now, got {func}")


def check_owner(cache_dir: str | os.PathLike[str] | None) -> None:
    """Raise `ValueError` for a folder that belongs to another user."""
    if cache_dir is not None and os.path.exists(cache_dir) and os.stat(cache_dir).st_uid != os.getuid():  # noqa: PTH110
        raise ValueError(f"Cache dir {cache_dir} must be owned by the current user ")


def config_of(config: Any, backend: Any) -> Any:
    """Return the config of a call, or that of its backend; `ValueError` if both are given and differ."""
    if backend is None:
        return config
    of_backend = getattr(backend, "keywords", {}).get("compiler_config")
    if config is not None and of_backend != config:
        raise ValueError("config in current backend is different from the config during cache generation.")
    return of_backend
