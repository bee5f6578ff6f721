"""The worlds of a case: cached, plain, and compiled by `torch.compile` with a backend that counts graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.debugging import aot_eager

import gearcache
from benchmarks.fuzz.world import World


class VaryingWorld(World):
    """A world that can attach, and knows which calls are outside declared gears."""

    def __init__(self, name: str, file: Path, backend: str, root: Path | None) -> None:
        self.limit = 16
        #: Whether the last call had a size that no gear allows, and misses raise.
        self.is_outside = False
        #: The sizes that gears declare for dim 0.
        self.gears: list[int] = []
        self._raises = True
        super().__init__(name, file, backend, root)
        self.space["attach"] = self.attach
        self._own.add("attach")

    def cached(self, function: Any, options: dict[str, Any]) -> Any:
        """Return the cached method, or the method itself in the plain world."""
        self._note(options)
        return super().cached(function, options)

    def attach(self, module: torch.nn.Module, **options: Any) -> torch.nn.Module:
        """Stands for `gearcache.attach` in the steps of a case."""
        self._note(options)
        if self.is_cached:
            gearcache.attach(module, **self.given(options))
        return module

    def _note(self, options: dict[str, Any]) -> None:
        config = options.get("config", {})
        self.limit = config.get("max_variants", self.limit)
        self.gears = options.get("gears", {}).get("x", {}).get(0, [])
        self._raises = "on_miss" not in config

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        found = args[0] if args else kwargs.get("x")
        size = found.size(0) if isinstance(found, torch.Tensor) and found.dim() else None
        self.is_outside = bool(self.gears) and self._raises and size is not None and size not in self.gears
        return super().run(function, *args, **kwargs)


class PeerWorld(World):
    """The plain world under `torch.compile`, whose default backend traces each graph once more and adds guards then."""

    def __init__(self, name: str, file: Path) -> None:
        self.graphs = 0
        super().__init__(f"{name}_peer", file, "eager", None)
        self.space["attach"] = self.attach

    def _counted(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return aot_eager(graph, inputs)

    def cached(self, function: Any, options: dict[str, Any]) -> Any:
        """Compile the function."""
        return torch.compile(function, backend=self._counted, fullgraph=True, dynamic=options.get("dynamic"))

    def attach(self, module: torch.nn.Module, **options: Any) -> torch.nn.Module:
        """Compile the module."""
        module.compile(backend=self._counted, fullgraph=True, dynamic=options.get("dynamic"))
        return module
