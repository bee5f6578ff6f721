"""Arguments made of specs, for `.warm()` without an example call. A relaunch that is called does not import this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.guards.gears.example_sizes import ExampleSizes, Special
from gearcache.guards.gears.input_specs import leaves
from gearcache.guards.gears.parse import GearSpec
from gearcache.guards.gears.tensor_spec import TensorSpec


def example_inputs(
    specs: Mapping[str, Any], gears: GearSpec, module: torch.nn.Module, special: Special | None = None
) -> dict[str, Any]:
    """Return an argument for each spec: tensors of zeros at one gear or at `special` sizes, values as they are."""
    tensors = [leaf for name, spec in specs.items() for _, leaf in leaves(spec, name) if isinstance(leaf, TensorSpec)]
    sizes = ExampleSizes(gears, {size for spec in tensors for size in spec.shape if isinstance(size, int)}, special)
    held = next(iter((*module.parameters(), *module.buffers())), None)
    default = torch.device("cpu") if held is None else held.device
    # Without weights (a prewarm) no argument has memory either: the device that it is for may not be in this host.
    is_shape = held is not None and (held.is_meta or private_fake.is_fake(held))

    def made(spec: Any, path: str) -> Any:
        if isinstance(spec, TensorSpec):
            shape = [
                sizes.of(path, dim) or (size if isinstance(size, int) else 1) for dim, size in enumerate(spec.shape)
            ]
            return spec.tensor(shape, torch.device("meta") if is_shape else spec.device or default)
        if isinstance(spec, (list, tuple)):
            return type(spec)(made(item, f"{path}[{index}]") for index, item in enumerate(spec))
        if isinstance(spec, dict):
            return {key: made(item, f"{path}[{key!r}]") for key, item in spec.items()}
        return spec

    return {name: made(spec, name) for name, spec in specs.items()}
