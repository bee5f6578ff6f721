"""npugraph_ex's `cache_compile` under its own signatures, served by gearcache.

`gearcache.compat.torchair.install()` puts both in place: `of_torch_npu` for `torch.npu.npugraph_ex.inference`, which
takes `options`, and `cache_compile` for `npugraph_ex.inference`, which takes a config.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

from gearcache.api import cache_compile as _cache_compile
from gearcache.compat.arguments import check_method, check_owner, config_of
from gearcache.errors import OptionError
from gearcache.ge_cache.npu.ascend import npugraph_ex_module
from gearcache.ge_cache.npu.config import NpuOptions
from gearcache.ge_cache.npu.options import config_leaves
from gearcache.guards.evidence.names import a_type
from gearcache.options import CompilerConfig

_MODE = "npugraph_ex"


def of_torch_npu(
    func: Callable[..., Any],
    *,
    options: Mapping[str, Any] | None = None,
    dynamic: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    fullgraph: bool = True,
) -> Callable[..., Any]:
    """Cache a bound method of an `nn.Module`, as `torch.npu.npugraph_ex.inference.cache_compile` does.

    `options` are attributes of `npugraph_ex.CompilerConfig`. `ValueError` for a function that is not such a method and
    for an unknown option; `TypeError` for any keyword that npugraph_ex would drop silently.
    """
    check_method(func)
    check_owner(cache_dir)
    config = CompilerConfig(backend="torchair", mode=_MODE, options={} if options is None else cast(Any, options))
    NpuOptions(_MODE, config.options).component()  # npugraph_ex reports a wrong option here, not at the first call
    return _cache_compile(
        func,
        config=config,
        dynamic=dynamic,
        cache_dir=cache_dir,
        global_rank=global_rank,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        custom_decompositions=custom_decompositions,
        fullgraph=fullgraph,
    )


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
    fullgraph: bool = True,
) -> Callable[..., Any]:
    """Cache a bound method of an `nn.Module`, as `npugraph_ex.inference.cache_compile` does.

    `config` is an `npugraph_ex.CompilerConfig`, read here, and `backend` is the result of `get_npu_backend` for it.
    Errors are those of `of_torch_npu`.
    """
    config = config_of(config, backend)
    return of_torch_npu(
        func,
        options=_changed_options(config),
        dynamic=dynamic,
        cache_dir=cache_dir,
        global_rank=global_rank,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        custom_decompositions=custom_decompositions,
        fullgraph=fullgraph,
    )


def _changed_options(config: Any) -> dict[str, Any]:
    """Return the options of a config that differ from npugraph_ex's defaults, by name."""
    if config is None:
        return {}
    fresh = npugraph_ex_module().CompilerConfig()
    if type(config).__name__ != type(fresh).__name__ or not hasattr(config, "static_kernel_compile"):
        raise OptionError(f"config is {a_type(config)}; it must be an npugraph_ex.CompilerConfig")
    defaults = config_leaves(fresh)
    return {name: value for name, value in config_leaves(config).items() if value != defaults.get(name, config)}
