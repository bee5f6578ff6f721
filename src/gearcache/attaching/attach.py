"""`attach`: the drop-in for `module.compile()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gearcache.attaching.attachment import Attachment
from gearcache.serving.call.parameters import Parameters


def attach(
    module: torch.nn.Module,
    /,
    *,
    gears: Mapping[str, Any] | None = None,
    config: Any = None,
    dynamic: bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    ge_cache: bool = False,
    input_signature: Any = None,
    constants: Sequence[str] = (),
    fullgraph: bool = True,
    remotes: str | Sequence[str] | None = None,
) -> Attachment:
    """Serve every call of a module, from any caller, with compiled graphs kept on disk.

    The options are those of `cache_compile`. Only the default of `dynamic` is that of `module.compile()`: the first
    graph is static, and sizes and ints that differ in a later call become dynamic. `gears` and `input_signature` use
    the argument names of the module's `forward`, also behind decorators. The module's hooks run around the graph.

    Raises `UnsupportedMethod` for a module that cannot be cached, `AlreadyAttached` for one that is attached,
    and everything that `cache_compile` raises.
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
    attachment = Attachment(module, parameters)
    attachment.attach()
    return attachment
