"""The parameters of `cache_compile`, checked as far as possible before the first call."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from gearcache.cache.layout import check_root
from gearcache.guards.dispatch.tensors.native import is_operator
from gearcache.guards.gears.input_specs import InputSpecs
from gearcache.guards.gears.parse import parse_gears
from gearcache.options import CompilerConfig, Settings, resolve_settings


class Parameters(Struct, frozen=True, eq=False, kw_only=True):
    """The arguments of `gearcache.cache_compile`, which documents them.

    Raises `TypeError` or `ValueError` for a value that is invalid for any method.
    """

    config: Any = None
    dynamic: bool | None = True
    cache_dir: str | os.PathLike[str] | None = None
    global_rank: int | None = None
    tp_rank: int | None = None
    pp_rank: int | None = None
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None
    ge_cache: bool = False
    gears: Mapping[str, Any] | None = None
    input_signature: Any = None
    #: Paths of ints that are to be constants of the graphs.
    constants: Sequence[str] = ()
    fullgraph: bool = True
    remotes: str | Sequence[str] | None = None
    #: The name to use for the class of the module, unless the config sets one; "" is the class's own name.
    label: str = ""
    #: Plain data that separates entries of equal methods, given by an integration.
    apart: Any = None

    def __post_init__(self) -> None:
        if self.fullgraph is not True:
            raise ValueError(
                f"cache_compile: fullgraph is {self.fullgraph!r}; only True is possible: a cached method is one graph"
            )
        if self.dynamic is not None and not isinstance(self.dynamic, bool):
            raise TypeError(f"cache_compile: dynamic is {self.dynamic!r}; it must be True, False or None")
        for name in ("global_rank", "tp_rank", "pp_rank"):
            rank = getattr(self, name)
            if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
                raise ValueError(f"cache_compile: {name} is {rank!r}; it must be an int of at least 0")
        if not isinstance(self.ge_cache, bool):
            raise TypeError(f"cache_compile: ge_cache is {self.ge_cache!r}; it must be True or False")
        if isinstance(self.constants, str) or not all(isinstance(path, str) for path in self.constants):
            raise TypeError(f"cache_compile: constants is {self.constants!r}; it must be a list of paths such as ['n']")
        force_setattr(self, "constants", tuple(self.constants))
        _check_decompositions(self.custom_decompositions)
        check_root(self.cache_dir)
        if self.remotes is not None:
            from gearcache.cache.remote.urls import parse_urls

            parse_urls(self.remotes, "cache_compile: remotes")
        settings = resolve_settings(self.config, has_gears=True)
        parse_gears(self.gears, settings.policy)
        # Example tensors are not kept.
        force_setattr(self, "input_signature", InputSpecs.of_signature(self.input_signature))
        _check_options(settings)

    def named_paths(self) -> list[Mapping[str, Any] | None]:
        """Return what is given by paths of arguments: behind a wrapper, their places may be others at each call."""
        return [self.gears, getattr(self.config, "pad_values", None), dict.fromkeys(self.constants)]

    def name_of(self, function: types.MethodType) -> str:
        """`Class.method`, the name of a method in entries, messages and metrics: the label replaces the class."""
        label = self.config.label if isinstance(self.config, CompilerConfig) else None
        return f"{label or self.label or type(function.__self__).__name__}.{function.__name__}"

    def settings(self, *, is_geared: bool = False) -> Settings:
        """Return the options with the current environment; `is_geared`: the first call's tensors have gears."""
        has_gears = bool(self.gears) or is_geared or self.input_signature.are_open
        settings = resolve_settings(self.config, has_gears=has_gears)
        if self.remotes is None:
            return settings
        remotes = self.remotes if isinstance(self.remotes, str) else tuple(self.remotes)
        return replace(settings, remotes=remotes, remotes_source="cache_compile: remotes")


def _check_decompositions(decompositions: Any) -> None:
    """Refuse a value that does not map operators to functions."""
    if decompositions is None:
        return
    if not isinstance(decompositions, Mapping):
        raise TypeError(
            f"cache_compile: custom_decompositions is {decompositions!r}; it must be a dict of operator to function"
        )
    for operator, function in decompositions.items():
        if not is_operator(operator) or not callable(function):
            raise TypeError(
                f"cache_compile: custom_decompositions has {operator!r}: {function!r}; it must map operators "
                f"(`torch.ops.aten.relu.default`) to functions"
            )


def _check_options(settings: Settings) -> None:
    """Refuse options that no cached graph could follow. Imports nothing for the usual options."""
    if settings.options and settings.backend in ("auto", "inductor"):
        from gearcache.ge_cache.inductor.options import check_options

        check_options(settings.options, settings.target)
    if settings.mode is not None and settings.backend == "inductor":
        from gearcache.ge_cache.inductor.options import check_mode

        check_mode(settings.mode)
