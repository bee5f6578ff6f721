"""`cache_compile`: what users call, on a bound method or as a decorator."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import torch

from gearcache.errors import UnsupportedMethod
from gearcache.guards.evidence.names import a_type, module_of
from gearcache.serving.call.bound_method import check_kind
from gearcache.serving.call.method import CachedMethod as CachedMethod
from gearcache.serving.call.parameters import Parameters

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gearcache.cached import Cached, CacheOptions, Decorator
    from gearcache.serving.call.decorated_method import CachedFunction

Gears = Mapping[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


@overload
def cache_compile(func: Callable[P, R], /, **options: Unpack[CacheOptions]) -> Cached[P, R]: ...


@overload
def cache_compile(func: None = None, /, **options: Unpack[CacheOptions]) -> Decorator: ...


def cache_compile(
    func: Callable[..., Any] | None = None,
    /,
    *,
    config: Any = None,
    dynamic: bool | None = True,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    ge_cache: bool = False,
    gears: Gears | None = None,
    input_signature: Any = None,
    constants: Sequence[str] = (),
    fullgraph: bool = True,
    remotes: str | Sequence[str] | None = None,
) -> Any:
    """Compile a method once, keep its graphs on disk, and dispatch to them without tracing in later processes.

    `func` is a bound method of an `nn.Module`, or, as a decorator, a method in a class body.

    - `config`: a `CompilerConfig` (ours or torchair's).
    - `dynamic`: how sizes and ints that vary are handled. True makes one graph for all sizes and all ints among the
      arguments; None starts with a static graph, and makes dynamic what differs in a later call; False makes a graph
      for each shape and value. Ints of the module become dynamic when they change, with True too. Beside gears,
      other dims are static until they differ, and ints follow `dynamic`.
      `torch._dynamo.mark_dynamic`, similar marks, and `torch.compiler.set_stance` mean what they mean for
      `torch.compile`, but `eager_then_compile` compiles at once. Marks count when something is compiled; those of the
      first call are in the key.
    - `cache_dir`: root of the cache; defaults to `$TORCHAIR_CACHE_HOME`, else `./.torchair_cache`.
    - `global_rank`, `tp_rank`, `pp_rank`: ranks of this process; `global_rank` defaults to that of
      `torch.distributed`, if it is initialised at the first call.
    - `custom_decompositions`: operator -> function, applied when the graph is recorded.
    - `ge_cache`: also keep GE's own compiled graphs beside the entry (NPU only, no effect elsewhere).
    - `gears`: `{argument: {dim: sizes}}` or `{argument: (size, ...)}`; sizes are a list, a `Symbol` or an expression of
      symbols, see `gearcache.guards.gears.parse`. Alternatively use `set_dim_gears`.
    - `input_signature`: declares the arguments before the first call: a `TensorSpec` or an example tensor
      for each, in a tuple, or in a dict by name for some of them. Symbols in shapes are gears, as in `gears`; a
      call with another dtype, rank or fixed size is an `InputError`, and `.warm()` needs no example. Alternatively use
      `.set_inputs(...)` of the cached method.
    - `constants`: paths of ints that become constants of the graphs, with a graph for each value, such as
      `("n", "sizes['width']", "self.window")`. The graph contains what they decide, which may be faster.
    - `fullgraph`: must be True; a method that cannot form one graph is refused.
    - `remotes`: tiers beyond this host, which gearcache asks before it compiles and to which it sends the result: URLs
      such as `redis://cache:6379/0` or `s3://bucket/team`, in order, in one text with blanks between or in a list;
      defaults to `$GEARCACHE_REMOTES`. An empty text means no tiers.

    Raises `TypeError` or `ValueError` here for mistakes that show before the first call, and at a call
    `CaptureError`, `CompileError`, `GearSpecError` or `InputError` (see `gearcache.errors`).
    """
    parameters = Parameters(
        config=config,
        dynamic=dynamic,
        cache_dir=cache_dir,
        global_rank=global_rank,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        custom_decompositions=custom_decompositions,
        ge_cache=ge_cache,
        gears=gears,
        input_signature=input_signature,
        constants=constants,
        fullgraph=fullgraph,
        remotes=remotes,
    )
    if func is None:
        return lambda function: _wrap(function, parameters)
    return _wrap(func, parameters)


def _wrap(func: Any, parameters: Parameters) -> CachedMethod | CachedFunction:
    if isinstance(func, types.MethodType):
        if not isinstance(func.__self__, torch.nn.Module):
            owner = func.__self__ if isinstance(func.__self__, type) else type(func.__self__)
            raise UnsupportedMethod(
                f"cache_compile takes a method of a torch.nn.Module, not of {owner.__qualname__}: `{func.__name__}` "
                "has no module whose weights could be bound; make it a method of a module's instances"
            )
        if hasattr(func.__self__, "_orig_mod"):
            raise UnsupportedMethod(_COMPILED)
        check_kind(func.__func__)
        return CachedMethod(func, parameters)
    if isinstance(func, types.FunctionType):
        if hasattr(func, "_torchdynamo_orig_callable") or module_of(func).startswith("torch._dynamo"):
            raise UnsupportedMethod(_COMPILED)
        owner_name, _, _ = func.__qualname__.rpartition(".")
        if owner_name and not owner_name.endswith("<locals>"):
            from gearcache.serving.call.decorated_method import CachedFunction

            check_kind(func)
            return CachedFunction(func, parameters)
        raise UnsupportedMethod(
            f"cache_compile takes a bound method of a torch.nn.Module, or decorates one in a class body; "
            f"`{func.__qualname__}` is a function, not a method"
        )
    if isinstance(func, torch.nn.Module):
        raise UnsupportedMethod(
            f"cache_compile takes a method, not a module: pass `{type(func).__name__}.forward` of the instance"
        )
    kind = type(func).__qualname__
    raise UnsupportedMethod(
        f"cache_compile takes a bound method of a torch.nn.Module, not {a_type(func)}{_ADVICE.get(kind, '')}"
    )


_COMPILED = (
    "cache_compile takes a method that torch.compile has not compiled already: pass that of the module itself, "
    "`model.forward` and not `torch.compile(model).forward`"
)
_ADVICE = {
    "ScriptMethod": ": TorchScript runs without Python; pass the method of the module before `torch.jit`",
    "partial": ": write a method that calls the other one with the arguments filled in",
    "staticmethod": ": it has no module whose weights could be bound; make it a method",
    "classmethod": ": it has no module whose weights could be bound; make it a method",
    "property": ": decorate a method, and let the property call it",
    "Tensor": ": a property was read; pass a method",
    "Parameter": ": a property was read; pass a method",
}
