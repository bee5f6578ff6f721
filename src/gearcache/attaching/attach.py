"""`attach`: the drop-in for `module.compile()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from msgspec.structs import replace

from gearcache.attaching.attachment import Attachment
from gearcache.attaching.repeated import RepeatedAttachment, find_blocks
from gearcache.serving.call.parameters import Parameters

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gearcache.cached import CacheOptions


@overload
def attach(
    module: torch.nn.Module, /, *, repeated: Literal[False] | None = ..., **options: Unpack[CacheOptions]
) -> Attachment: ...


@overload
def attach(
    module: torch.nn.Module, /, *, repeated: str | Sequence[str] | Literal[True], **options: Unpack[CacheOptions]
) -> RepeatedAttachment: ...


def attach(
    module: torch.nn.Module,
    /,
    *,
    gears: Mapping[str, Any] | None = None,
    repeated: str | Sequence[str] | bool | None = None,
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
) -> Attachment | RepeatedAttachment:
    """Serve every call of a module, from any caller, with compiled graphs kept on disk.

    The options are those of `cache_compile`. Only the default of `dynamic` is that of `module.compile()`: the first
    graph is static, and sizes and ints that differ in a later call become dynamic. `gears` and `input_signature` use
    the argument names of the module's `forward`, also behind decorators. The module's hooks run around the graph.

    - `repeated`: attach blocks of the module instead of the module: those of the list at a path (`"layers"`), of
      several paths, or with True of all lists with equal blocks. Equal blocks are compiled once. `gears` and all
      other options then refer to the `forward` of a block.

    Raises `UnsupportedMethod` for a module that cannot be cached, `AlreadyAttached` for one that is attached,
    `ValueError` if `repeated` finds no blocks, and everything that `cache_compile` raises.
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
    if repeated is not None and repeated is not False:
        blocks = find_blocks(module, repeated)
        return RepeatedAttachment(module, blocks, replace(parameters, blocks=len(blocks)))
    attachment = Attachment(module, parameters)
    attachment.attach()
    return attachment
