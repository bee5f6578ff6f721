"""Run the hooks of a module, as `torch.nn.Module` does, around a forward that is not the module's own.

`Module._call_impl` calls `self.forward`, so its loop cannot be used; `tests/attaching/test_hooks.py` compares the two.
"""

from __future__ import annotations

import warnings
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


def call_with_hooks(module: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `forward` with the forward hooks of the module around it; their errors are passed on."""
    return _HookedCall(module).run(forward, args, kwargs)


class _HookedCall:
    """One call. The arguments and results of the hooks are kept, for hooks that always run."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._called_hooks: set[int] = set()
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._result: Any = None

    def run(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._args, self._kwargs = args, kwargs
        try:
            self._before()
            self._result = forward(*self._args, **self._kwargs)
            self._after()
        except Exception:
            self._always()
            raise
        return self._result

    def _before(self) -> None:
        module = self._module
        hooks = [*_global._global_forward_pre_hooks.items(), *module._forward_pre_hooks.items()]
        for number, hook in hooks:
            if number in module._forward_pre_hooks_with_kwargs:
                output = hook(module, self._args, self._kwargs)
                if output is None:
                    continue
                if not isinstance(output, tuple) or len(output) != 2:
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {output}."
                    )
                self._args, self._kwargs = output
            else:
                output = hook(module, self._args)
                if output is not None:
                    self._args = output if isinstance(output, tuple) else (output,)

    def _after(self) -> None:
        for number, hook, takes_kwargs, is_always, _ in self._forward_hooks():
            if is_always:
                self._called_hooks.add(number)
            if takes_kwargs:
                output = hook(self._module, self._args, self._kwargs, self._result)
            else:
                output = hook(self._module, self._args, self._result)
            if output is not None:
                self._result = output

    def _always(self) -> None:
        """Run the hooks registered with `always_call=True` that have not run; their errors become warnings."""
        for number, hook, takes_kwargs, is_always, kind in self._forward_hooks():
            if not is_always or number in self._called_hooks:
                continue
            try:
                if takes_kwargs and kind == "module":  # torch passes no keywords to a global hook here
                    output = hook(self._module, self._args, self._kwargs, self._result)
                else:
                    output = hook(self._module, self._args, self._result)
                if output is not None:
                    self._result = output
            except Exception as error:
                warnings.warn(
                    f"{kind} forward hook with ``always_call=True`` raised an exception that was silenced as another "
                    f"error was raised in forward: {error}",
                    stacklevel=2,
                )

    def _forward_hooks(self) -> Iterator[tuple[int, Callable[..., Any], bool, bool, str]]:
        """Yield number, hook, whether it takes keywords, whether it runs always, and its kind."""
        module = self._module
        for number, hook in list(_global._global_forward_hooks.items()):
            with_kwargs = number in _global._global_forward_hooks_with_kwargs
            yield number, hook, with_kwargs, number in _global._global_forward_hooks_always_called, "global module"
        for number, hook in list(module._forward_hooks.items()):
            with_kwargs = number in module._forward_hooks_with_kwargs
            yield number, hook, with_kwargs, number in module._forward_hooks_always_called, "module"
