"""torchair's cache functions under torchair's signatures, served by gearcache.

One line at the top of a program is enough:

    import gearcache.compat.torchair
    gearcache.compat.torchair.install()

Where torchair's behaviour is a defect, this keeps the cache and answers correctly, or refuses; `docs/npu.md` lists the
main deviations. torchair and npugraph_ex are imported when they are first needed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gearcache.api import cache_compile as _cache_compile
from gearcache.compat import npugraph_ex as _npugraph_ex
from gearcache.compat.arguments import check_method, check_owner, config_of
from gearcache.compat.entrances import entrances
from gearcache.compat.replacement import Replacement
from gearcache.errors import OptionError
from gearcache.exporting.torchair_export import dynamo_export as dynamo_export
from gearcache.ge_cache.npu.ascend import torchair_config_class, torchair_module, watch_ge
from gearcache.ge_cache.private_torch.dynamo import mark_for_compile
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.parse import set_dim_gears as _set_dim_gears
from gearcache.options import CompilerConfig as _Config
from gearcache.options import InferenceConfig
from gearcache.readable.entry import readable_cache as _readable_cache

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


def __getattr__(name: str) -> Any:
    if name == "CompilerConfig":
        return torchair_config_class()
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

    `config` is a `torchair.CompilerConfig`, `backend` what `get_npu_backend` returned for it. `ValueError` for any
    other function, and for a config that is invalid or differs from the backend's; `TypeError` for any
    keyword that torchair would have dropped silently.
    """
    config = config_of(config, backend)
    check_method(func)
    check_owner(cache_dir)
    if config is None:
        config = torchair_config_class()()
    elif not all(hasattr(config, name) for name in ("mode", "inference_config", "experimental_config")):
        raise OptionError(f"config is {a_type(config)}; it must be a torchair.CompilerConfig")
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


def set_dim_gears(t: torch.Tensor, dim_gears: Mapping[int, Sequence[int]]) -> None:
    """Give dims of a tensor gears, for cached methods and for `torch.compile` with torchair's backend.

    As `gearcache.set_dim_gears`; the dims are also marked dynamic (`torch._dynamo.mark_dynamic`), which is how torchair
    finds them. Cached methods ignore those marks. If it raises, nothing was set or marked.
    """
    _set_dim_gears(t, dim_gears)
    mark_for_compile(t, dim_gears)


def readable_cache(
    cache_bin: str | os.PathLike[str], print_output: bool = True, file: str | os.PathLike[str] | None = None
) -> str:
    """Return an entry as text, as `gearcache.readable_cache`: `cache_bin` is the `entry_path` of a cached method.

    `ValueError` for a cache file of torchair's own.
    """
    return _readable_cache(cache_bin, print_output, file)


def get_npu_backend(*, compiler_config: Any = None, custom_decompositions: Mapping[Any, Any] | None = None) -> Any:
    """Return torchair's own backend for `torch.compile`; it uses no cache."""
    return torchair_module().get_npu_backend(
        compiler_config=compiler_config, custom_decompositions=dict(custom_decompositions or {})
    )


_replacement = Replacement(
    entrances(
        {
            "cache_compile": cache_compile,
            "readable_cache": readable_cache,
            "set_dim_gears": set_dim_gears,
            "dynamo_export": dynamo_export,
        },
        {"cache_compile": _npugraph_ex.cache_compile, "readable_cache": readable_cache},
        {"cache_compile": _npugraph_ex.of_torch_npu, "readable_cache": readable_cache},
    ),
    seen=watch_ge,
)


def install() -> None:
    """Put these functions in place of torchair's and npugraph_ex's own, at every entrance. Safe to call twice.

    Imports neither package: one that is imported later is changed at its import. Names that modules bound earlier
    (`from torchair.inference import cache_compile`) are replaced too; class attributes and partials that hold one are
    not: call it before the program's other imports.
    """
    _replacement.begin()
    watch_ge()


def uninstall() -> None:
    """Restore torchair's own functions wherever ours are still in place. Safe to call twice."""
    _replacement.end()
