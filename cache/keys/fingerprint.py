"""The key of a method: everything that identifies it and is known before tracing.

The only module of `cache/` that imports torch. Weight values, HOME, absolute paths, process ids,
device indices, host names and log settings are left out on purpose.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch
from msgspec import Struct

from gearcache.cache.keys.key import CacheKey
from gearcache.cache.keys.module_tree import Modules, hidden_names, named_members, named_modules
from gearcache.errors import UnkeyableValue
from gearcache.torch_state import state_component


class Ranks(Struct, frozen=True):
    """Where a process stands in a distributed job; None where it is not in one."""

    world_size: int | None = None
    global_rank: int | None = None
    tp_rank: int | None = None
    pp_rank: int | None = None

    @property
    def folder(self) -> str:
        """Return the folder of this rank below an entry; empty outside a distributed job."""
        parts = []
        if self.world_size is not None or self.global_rank is not None:
            parts.append(f"world{self.world_size or 1}global_rank{self.global_rank or 0}")
        parts += [f"tp_rank{self.tp_rank}"] if self.tp_rank is not None else []
        parts += [f"pp_rank{self.pp_rank}"] if self.pp_rank is not None else []
        return "_".join(parts)


def resolve_ranks(
    global_rank: int | None, tp_rank: int | None, pp_rank: int | None, *, world_size: int | None = None
) -> Ranks:
    """Return the ranks as they are now: the caller's, else those of an initialised process group of 2 or more."""
    world = world_size
    if world is None and torch.distributed.is_available() and torch.distributed.is_initialized():
        size = torch.distributed.get_world_size()
        if size > 1:
            world = size
            if global_rank is None:
                global_rank = torch.distributed.get_rank()
    return Ranks(world, global_rank, tp_rank, pp_rank)


def module_component(module: torch.nn.Module) -> dict[str, Any]:
    """Return the class tree and the parameters and buffers with sizes, dtypes and devices; never their values."""
    return _component_of(named_modules(module))


def is_module_of(key: CacheKey, module: torch.nn.Module) -> bool:
    """Return whether a module is as it was when a key was made of it."""
    modules, components = named_modules(module), dict(key.components)
    hidden = hidden_names(modules)
    return components["module"] == _component_of(modules) and components.get("hidden names", []) == hidden


def is_state_of(key: CacheKey) -> bool:
    """Return whether torch's global state is that of a key, but for the thread count, which a build may set."""
    state: Any = dict(key.components)["state"]
    return {**state_component(), "threads": 0} == {**state, "threads": 0}


def _component_of(modules: Modules) -> dict[str, Any]:
    return {
        "classes": [[name, f"{type(child).__module__}:{type(child).__qualname__}"] for name, child in modules],
        "parameters": _tensors(named_members(modules, "_parameters")),
        "buffers": _tensors(named_members(modules, "_buffers")),
    }


def _tensors(named_tensors: Any) -> list[str]:
    """Return dtype, device type, sizes, strides, requires_grad and name; for a repeated tensor, its first position.

    One text each, with the name last as it may contain anything: the key of a large model is read and hashed at every
    start.
    """
    positions: dict[int, int] = {}
    texts: list[str] = []
    for name, tensor in named_tensors:
        position = positions.setdefault(id(tensor), len(texts))
        if position < len(texts):
            texts.append(f"same as {position}: {name}")
            continue
        grad = " requires_grad" if tensor.requires_grad else ""
        texts.append(f"{tensor.dtype} {tensor.device.type} {_layout(tensor)}{grad}{_wrapper_text(tensor)}: {name}")
    return texts


def _wrapper_text(tensor: Any) -> str:
    """Return the class of a wrapper tensor, its settings, and its inner tensors; "" for a plain tensor."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return ""
    if type(tensor).__module__.partition(".")[0] == "torch":
        return f" {_class(tensor)}"  # the version of torch identifies the rest
    names, settings = tensor.__tensor_flatten__()
    parts = [(name, getattr(tensor, name)) for name in names]
    inner_texts = [f"{name}: {part.dtype} {_layout(part)}{_wrapper_text(part)}" for name, part in parts]
    return f" {_class(tensor)} {_setting(settings)} {inner_texts}"


def _setting(value: Any) -> str:
    """Return a text that is equal for two settings only if they are the same."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes, torch.dtype, torch.device):
        return f"{kind.__name__} {value!r}"
    if isinstance(value, Enum):
        return f"{_class(value)}.{value.name}"
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return f"{_class(kind)} {[[_setting(name), _setting(item)] for name, item in value.items()]}"
    if isinstance(value, (tuple, list)):
        return f"{_class(kind)} {[_setting(item) for item in value]}"
    raise UnkeyableValue("module", kind.__qualname__, "a setting of a tensor that consists of others")


def _class(value: Any) -> str:
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _layout(tensor: torch.Tensor) -> str:
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return f"{list(tensor.shape)} {tensor.layout}"
    return f"{list(tensor.shape)} {list(tensor.stride())}"


@functools.cache
def versions_component() -> dict[str, str]:
    """Return the versions that compiled code depends on."""
    return {
        "torch": str(torch.__version__),
        "torch_git": str(torch.version.git_version),
        "cuda": str(torch.version.cuda),
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.cache_tag or sys.implementation.name,
        "system": platform.system(),
        "machine": platform.machine(),
    }


def method_key(
    name: str,
    module: torch.nn.Module,
    *,
    method: Mapping[str, Any],
    options: Mapping[str, Any],
    gears: Mapping[str, Any],
    dynamic: bool,
    decompositions: Sequence[Sequence[str]],
    overrides: Sequence[Sequence[Any]],
    software: Mapping[str, str],
    ranks: Ranks,
    state: Mapping[str, Any],
    backend: Mapping[str, Any],
) -> CacheKey:
    """Return the key of a method, whose `name` is for people; `UnkeyableValue` where a component has no stable form.

    `method` and `decompositions` come from `guards.evidence.identity`, `overrides` from `guards.evidence.overrides`;
    `software` names further versions.
    """
    modules = named_modules(module)
    components: tuple[tuple[str, Any], ...] = (
        ("method", dict(method)),
        ("module", _component_of(modules)),
        ("options", dict(options)),
        ("gears", dict(gears)),
        ("dynamic", dynamic),
        ("decompositions", [list(item) for item in decompositions]),
        ("overrides", [list(item) for item in overrides]),
        ("ranks", [ranks.world_size, ranks.global_rank, ranks.tp_rank, ranks.pp_rank]),
        ("state", dict(state)),
        ("versions", {**versions_component(), **software}),
        ("backend", dict(backend)),
    )
    # A component of its own: siblings may differ in their modules.
    if hidden := hidden_names(modules):
        components += (("hidden names", hidden),)
    return CacheKey(name, components)
