"""Run the hooks of a module, as `torch.nn.Module` does, around a forward that is not the module's own.

`Module._call_impl` calls `self.forward`, so its loop cannot be used; `tests/attaching/test_hooks.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

_global: Any = torch.nn.modules.module


def has_hooks(module: Any) -> bool:
    """Whether a call of the module runs hooks, its own or those of all modules."""
    attributes = module.__dict__
    return bool(
        attributes["_forward_hooks"]
        or attributes["_forward_pre_hooks"]
        or attributes["_backward_hooks"]
        or attributes["_backward_pre_hooks"]
        or _global._global_forward_hooks
        or _global._global_forward_pre_hooks
        or _global._global_backward_hooks
        or _global._global_backward_pre_hooks
    )


def backward_hooks(module: Any) -> list[Callable[..., Any]]:
    """Return the hooks that a backward pass would run."""
    hook_tables = (
        module._backward_hooks,
        module._backward_pre_hooks,
        _global._global_backward_hooks,
        _global._global_backward_pre_hooks,
    )
    return [hook for hooks in hook_tables for hook in hooks.values()]


def always_called_hooks(module: Any) -> list[Callable[..., Any]]:
    """Return the forward hooks that a call would run even if something failed in it."""
    hook_tables = (
        (module._forward_hooks, module._forward_hooks_always_called),
        (_global._global_forward_hooks, _global._global_forward_hooks_always_called),
    )
    return [hook for hooks, marked in hook_tables for number, hook in hooks.items() if number in marked]


def call_with_hooks(module: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `forward` with the forward hooks of the module around it; their errors are passed on."""
    args, kwargs = _before(module, args, kwargs)
    result = forward(*args, **kwargs)
    for hook, takes_kwargs in _forward_hooks(module):
        output = hook(module, args, kwargs, result) if takes_kwargs else hook(module, args, result)
        if output is not None:
            result = output
    return result


def _before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run the pre-hooks; returns the arguments for the forward."""
    hooks = [*_global._global_forward_pre_hooks.items(), *module._forward_pre_hooks.items()]
    for number, hook in hooks:
        if number in module._forward_pre_hooks_with_kwargs:
            output = hook(module, args, kwargs)
            if output is None:
                continue
            if not isinstance(output, tuple) or len(output) != 2:
                raise RuntimeError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {output}."
                )
            args, kwargs = output
        else:
            output = hook(module, args)
            if output is not None:
                args = output if isinstance(output, tuple) else (output,)
    return args, kwargs


def _forward_hooks(module: Any) -> Iterator[tuple[Callable[..., Any], bool]]:
    """Yield each hook, and whether it takes keywords."""
    for number, hook in list(_global._global_forward_hooks.items()):
        yield hook, number in _global._global_forward_hooks_with_kwargs
    for number, hook in list(module._forward_hooks.items()):
        yield hook, number in module._forward_hooks_with_kwargs
