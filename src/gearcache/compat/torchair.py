"""torchair's cache functions under torchair's signatures, served by gearcache.

One line at the top of a program is enough:

    import gearcache.compat.torchair
    gearcache.compat.torchair.install()

Where torchair's behaviour is a defect, this keeps the cache and answers right, or refuses; `docs/npu.md` lists every
deviation. torchair itself is imported when it is first needed.
"""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gearcache.api import cache_compile as _cache_compile
from gearcache.exporting.torchair_export import dynamo_export as dynamo_export
from gearcache.ge_cache.npu.ascend import torchair_module
from gearcache.guards.gears.parse import set_dim_gears as set_dim_gears
from gearcache.options import CompilerConfig as _Config
from gearcache.options import InferenceConfig
from gearcache.readable.entry import readable_cache as readable_cache

__all__ = [
    "CompilerConfig",  # noqa: F822 - torchair's own, by `__getattr__`
    "cache_compile",
    "dynamo_export",
    "get_npu_backend",
    "install",
    "readable_cache",
    "set_dim_gears",
    "uninstall",
]

_REPLACED = ("cache_compile", "readable_cache", "set_dim_gears")
_originals: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    if name == "CompilerConfig":
        return torchair_module().CompilerConfig
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def cache_compile(
    func: Callable[..., Any],
    *,
    config: Any = None,
    backend: Any = None,
    dynamic: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    ge_cache: bool = False,
    fullgraph: bool = True,
) -> Callable[..., Any]:
    """Cache a bound method of an `nn.Module`, as `torchair.inference.cache_compile` does.

    `config` is a `torchair.CompilerConfig`, `backend` what `get_npu_backend` returned for it. `ValueError` for a
    function that is no such method, or for a config that differs from the backend's; `TypeError` for any keyword that
    torchair would have dropped silently.
    """
    if backend is not None:
        of_backend = getattr(backend, "keywords", {}).get("compiler_config")
        if config is not None and of_backend != config:
            raise ValueError("config in current backend is different from the config during cache generation.")
        config = of_backend
    if not isinstance(func, types.MethodType):
        raise ValueError(f"Only method can be cached now, got {func}")
    if not isinstance(func.__self__, torch.nn.Module):
        raise ValueError(f"Only torch.nn.Module method can be cached now, got {func}")
    _check_owner(cache_dir)
    if config is None:
        config = torchair_module().CompilerConfig()
    if ge_cache and config.mode.value != "max-autotune":
        warnings.warn(
            f"Ge_cache will not take effect when config.mode is set to {config.mode.value}.", UserWarning, stacklevel=2
        )
    policy = config.inference_config.dynamic_gears_merge_policy.value
    return _cache_compile(
        func,
        config=_Config(backend="torchair", torchair=config, inference_config=InferenceConfig(policy)),
        dynamic=dynamic,
        cache_dir=cache_dir,
        global_rank=global_rank,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        custom_decompositions=custom_decompositions,
        ge_cache=ge_cache,
        fullgraph=fullgraph,
    )


def _check_owner(cache_dir: str | os.PathLike[str] | None) -> None:
    if cache_dir is not None and os.path.exists(cache_dir) and os.stat(cache_dir).st_uid != os.getuid():  # noqa: PTH110
        raise ValueError(f"Cache dir {cache_dir} must be owned by the current user ")


def get_npu_backend(*, compiler_config: Any = None, custom_decompositions: Mapping[Any, Any] | None = None) -> Any:
    """Return torchair's own backend for `torch.compile`; it goes through no cache."""
    return torchair_module().get_npu_backend(
        compiler_config=compiler_config, custom_decompositions=dict(custom_decompositions or {})
    )


def install() -> None:
    """Put these functions in place of torchair's own in `torchair.inference` and `torchair`. Safe to call twice."""
    torchair = torchair_module()
    if _originals:
        return
    for name in _REPLACED:
        _originals[name] = getattr(torchair.inference, name)
        setattr(torchair.inference, name, globals()[name])
    _originals["dynamo_export"] = torchair.dynamo_export
    torchair.dynamo_export = dynamo_export


def uninstall() -> None:
    """Put torchair's own functions back."""
    torchair = torchair_module()
    for name, original in _originals.items():
        setattr(torchair if name == "dynamo_export" else torchair.inference, name, original)
    _originals.clear()
