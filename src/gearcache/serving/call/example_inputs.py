"""Makes arguments from specs, for `.warm()` without an example call. A relaunch that is called does not import this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gearcache.errors import GearSpecError
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.guards.gears.example_sizes import ExampleSizes, Special
from gearcache.guards.gears.input_specs import leaves
from gearcache.guards.gears.parse import GearSpec
from gearcache.guards.gears.tensor_spec import TensorSpec


def example_inputs(
    specs: Mapping[str, Any], gears: GearSpec, module: torch.nn.Module, special: Special | None = None
) -> dict[str, Any]:
    """Return an argument for each spec: tensors of zeros at one gear or at `special` sizes; values unchanged."""
    tensors = [leaf for name, spec in specs.items() for _, leaf in leaves(spec, name) if isinstance(leaf, TensorSpec)]
    sizes = ExampleSizes(gears, {size for spec in tensors for size in spec.shape if isinstance(size, int)}, special)
    weight = next(iter((*module.parameters(), *module.buffers())), None)
    default = torch.device("cpu") if weight is None else weight.device
    # If the weights have no memory (a prewarm), neither do arguments: this host may lack the target device.
    is_shape = weight is not None and (weight.is_meta or private_fake.is_fake(weight))

    def make_example(spec: Any, path: str) -> Any:
        if isinstance(spec, TensorSpec):
            shape = [
                sizes.of(path, dim) or (size if isinstance(size, int) else 1) for dim, size in enumerate(spec.shape)
            ]
            try:
                return spec.tensor(shape, torch.device("meta") if is_shape else spec.device or default)
            except (RuntimeError, NotImplementedError) as error:  # too large, of a dtype without zeros, no such device
                raise GearSpecError(
                    f"no tensor can be made for `{path}`, declared as {spec.dtype} of shape {spec.shape_text} "
                    f"({str(error).splitlines()[0]}); give one: `.warm({path}=...)`"
                ) from error
        if isinstance(spec, (list, tuple)):
            return type(spec)(make_example(item, f"{path}[{index}]") for index, item in enumerate(spec))
        if isinstance(spec, dict):
            return {key: make_example(item, f"{path}[{key!r}]") for key, item in spec.items()}
        return spec

    return {name: make_example(spec, name) for name, spec in specs.items()}
