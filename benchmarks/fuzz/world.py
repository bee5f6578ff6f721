"""The two worlds of a case: one file imported twice, run plainly in one and through gearcache in the other."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.utils._python_dispatch

import gearcache
from gearcache.options import InferenceConfig

_present: list[World] = []


class World:
    """A namespace for steps, with the imported subject as `s`."""

    def __init__(self, name: str, file: Path, backend: str, root: Path | None, *, refreshed: bool = False) -> None:
        self.is_cached = root is not None
        self._root, self._backend, self._refreshed = root, backend, refreshed
        self.name = name if self.is_cached else f"{name}_plain"
        self.methods: list[gearcache.api.CachedMethod] = []
        #: The exception of the step's call, and how often the step called.
        self.error: BaseException | None = None
        self.calls = 0
        self.space: dict[str, Any] = {}
        with self.entered():
            self.subject = _imported(self.name, file)
        self.space = {
            "s": self.subject,
            "torch": torch,
            "copy": copy,
            "tensor": tensor,
            "run": self.run,
            "cached": cached,
            "spoil": spoil,
            "Counting": Counting,
            "__name__": "__fuzz__",
        }
        self._own = set(self.space) | {"__builtins__"}

    def take(self, text: str, number: int) -> BaseException | None:
        """Execute one step; returns the exception that it raised."""
        self.error, self.calls = None, 0
        torch.manual_seed(number)
        try:
            with self.entered():
                exec(compile(text, f"<step {number}>", "exec"), self.space)  # noqa: S102
        except Exception as error:
            return error
        return None

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the method. The plain world runs it without autograd, which is the reference for a cached call."""
        self.calls += 1
        try:
            if not self.is_cached:
                # A mode that sees the operators has to see those of the unchanged method, including autograd's.
                is_seen = torch._C._len_torch_dispatch_stack() > 0
                with contextlib.nullcontext() if is_seen else torch.no_grad():
                    return function(*args, **kwargs)
            if self._refreshed:
                self._refresh(function)
            return function(*args, **kwargs)
        except Exception as error:
            self.error = error
            raise

    def cached(self, function: Any, options: dict[str, Any]) -> Any:
        """Return what `cache_compile` returns in the cached world, and the method itself in the plain one."""
        if not self.is_cached:
            return function
        return gearcache.cache_compile(function, **self.given(options))

    def given(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of gearcache for the options of a case."""
        options = dict(options)
        config = {"backend": self._backend, "strict": True, **options.pop("config", {})}
        if "policy" in config:
            config["inference_config"] = InferenceConfig(config.pop("policy"))
        return {"cache_dir": self._root, "config": gearcache.CompilerConfig(**config), **options}

    def state(self) -> dict[str, Any]:
        """Return everything that calls may have changed: the namespace of the steps and the globals of the subject."""
        return {
            "space": {name: value for name, value in self.space.items() if name not in self._own},
            "globals": {
                name: value
                for name, value in self.subject.__dict__.items()
                if not name.startswith("__") and name not in ("torch", "cached")
            },
        }

    def _refresh(self, function: Any) -> None:
        if isinstance(function, gearcache.api.CachedMethod):
            function.refresh()
        else:
            for value in list(vars(getattr(function, "__self__", object)).values()):
                if isinstance(value, gearcache.api.CachedMethod):
                    value.refresh()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the world that `cached` uses."""
        _present.append(self)
        try:
            yield
        finally:
            _present.pop()

    def close(self) -> None:
        """Forget the subject."""
        sys.modules.pop(self.name, None)
        self.space.clear()


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    """A dispatch mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def spoil(value: Any) -> None:
    """Write the tensors of a result, as its owner may."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and not value.is_inference():
            with contextlib.suppress(RuntimeError), torch.no_grad():  # memory that is shared within the tensor
                value.detach().mul_(3.0)  # autograd's own record of views is not compared
    elif isinstance(value, (list, tuple)):
        for item in value:
            spoil(item)
    elif isinstance(value, dict):
        spoil(list(value.values()))


def cached(function: Any = None, /, **options: Any) -> Any:
    """Stands for `cache_compile` in the text of a case."""
    if function is None:
        return lambda given: _present[-1].cached(given, options)
    return _present[-1].cached(function, options)


def _imported(name: str, file: Path) -> types.ModuleType:
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # files are rewritten within one tick of the clock
    try:
        specification.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


def tensor(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32", layout: str = "plain") -> torch.Tensor:
    """Make a tensor whose values follow from the seed, in one of the layouts that `LAYOUTS` names."""
    if layout == "inference":
        with torch.inference_mode():
            return tensor(shape, seed, dtype)
    with torch.inference_mode(False):
        return _laid_out(shape, seed, dtype, layout)


LAYOUTS = ("plain", "turned", "step", "offset", "expanded", "overlapping", "grad", "inference")


def _laid_out(shape: tuple[int, ...], seed: int, dtype: str, layout: str) -> torch.Tensor:
    if layout == "turned" and len(shape) > 1:
        return _values(shape[::-1], seed, dtype).permute(*range(len(shape) - 1, -1, -1))
    if layout == "step" and shape:
        return _values((*shape[:-1], shape[-1] * 2), seed, dtype)[..., ::2]
    if layout == "offset" and shape:
        return _values((shape[0] + 2, *shape[1:]), seed, dtype)[1 : shape[0] + 1]
    if layout == "expanded" and shape:
        return _values((1, *shape[1:]), seed, dtype).expand(shape)
    if layout == "overlapping" and len(shape) > 1:
        flat = _values((shape[0] + shape[1] + 4,), seed, dtype)
        return flat.as_strided(shape[:2], (1, 1)) if len(shape) == 2 else _values(shape, seed, dtype)
    made = _values(shape, seed, dtype)
    return made.requires_grad_() if layout == "grad" and made.is_floating_point() else made


def _values(shape: tuple[int, ...], seed: int, dtype: str) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    if kind == torch.bool:
        return torch.randint(0, 2, shape, generator=made).bool()
    if not kind.is_floating_point and not kind.is_complex:
        return torch.randint(0, 4, shape, generator=made).to(kind)
    return torch.randn(shape, generator=made, dtype=kind if kind.is_complex else torch.float32).to(kind)
