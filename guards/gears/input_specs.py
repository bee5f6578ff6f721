"""The specs of a method's arguments as users write them: `input_signature=` and the arguments of `set_inputs`.

As in MindSpore there are two modes: by position, where the specs cover all arguments of a call, and by name, where the
calls decide the unnamed arguments. A spec is a `TensorSpec`, an example tensor, None, a number, a text, a dtype or a
device that every call has, or a list, tuple or dict of specs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import GearSpecError
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.tensor_spec import ExampleSpec, TensorSpec

_VALUES = (type(None), bool, int, float, str, torch.dtype, torch.device)
_CONTAINERS = (list, tuple, dict)
#: Argument, value found, value allowed.
Difference = tuple[str, str, str]


class InputSpecs(Struct, frozen=True):
    """Specs by position or by name; neither where nothing is declared."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is declared."""
        return bool(self.positional or self.named)

    @property
    def are_open(self) -> bool:
        """Whether they leave a size open: by a symbol, a list of gears or None."""
        all_leaves = [leaf for spec in (*self.positional, *self.named.values()) for _, leaf in leaves(spec, "")]
        return any(
            not isinstance(size, int) for leaf in all_leaves if isinstance(leaf, TensorSpec) for size in leaf.shape
        )

    @staticmethod
    def of_signature(specs: Any) -> InputSpecs:
        """Return the specs of an `input_signature=`: one spec, a tuple or list of specs, or a dict by name."""
        if specs is None:
            return InputSpecs()
        if isinstance(specs, InputSpecs):
            return specs
        if isinstance(specs, (torch.Tensor, TensorSpec)):
            specs = (specs,)
        if not isinstance(specs, _CONTAINERS):
            raise GearSpecError(
                f"input_signature is {a_type(specs)}; it must be a TensorSpec or an example tensor, a tuple of one per "
                "argument, or a dict of argument names to them"
            )
        if not specs:
            raise GearSpecError(f"input_signature is {specs!r}; it must name at least one argument, or be None")
        if isinstance(specs, dict):
            return InputSpecs.of_inputs("input_signature", (), specs)
        return InputSpecs.of_inputs("input_signature", tuple(specs), {})

    @staticmethod
    def of_inputs(owner: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> InputSpecs:
        """Return checked specs; `GearSpecError` names an invalid one."""
        if positional and named:
            raise GearSpecError(
                f"{owner}: {len(positional)} specs are given by position and `{next(iter(named))}` by name; give those "
                "of all arguments by position, or some by name"
            )
        for name in named:
            if not isinstance(name, str) or not name.isidentifier():
                raise GearSpecError(f"{owner} names {name!r}; it must be the name of an argument")
        return InputSpecs(
            tuple(_check_spec(spec, f"{owner}[{index}]") for index, spec in enumerate(positional)),
            {name: _check_spec(spec, f"{owner} of `{name}`") for name, spec in named.items()},
        )


def _check_spec(spec: Any, owner: str, around: tuple[Any, ...] = ()) -> Any:
    """Return a checked spec; `around` are the containers that it is in."""
    if isinstance(spec, TensorSpec) or type(spec) in _VALUES:
        return spec
    if isinstance(spec, torch.Tensor):
        return ExampleSpec.of(spec)
    if any(spec is other for other in around):
        raise GearSpecError(f"{owner} is {a_type(spec)} that holds itself; it must be of specs and have an end")
    inside = (*around, spec)
    if type(spec) in (list, tuple):
        return type(spec)(_check_spec(item, f"{owner}[{index}]", inside) for index, item in enumerate(spec))
    if type(spec) is dict:
        return {key: _check_spec(item, f"{owner}[{key!r}]", inside) for key, item in spec.items()}
    raise GearSpecError(
        f"{owner} is {a_type(spec)}; it must be a TensorSpec, an example tensor, None, a number, a text, a dtype, a "
        "device, or a list, tuple or dict of these; an argument of another kind can be left out where specs have names"
    )


def leaves(spec: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the specs inside a spec that are not containers, by paths as in `Access.text`."""
    if isinstance(spec, (list, tuple)):
        for index, item in enumerate(spec):
            yield from leaves(item, f"{path}[{index}]")
    elif isinstance(spec, dict):
        for key, item in spec.items():
            yield from leaves(item, f"{path}[{key!r}]")
    else:
        yield path, spec


def containers(spec: Any, path: str) -> Iterator[str]:
    """Yield the paths of the lists, tuples and dicts of a spec."""
    if isinstance(spec, _CONTAINERS):
        yield path
        pairs = spec.items() if isinstance(spec, dict) else enumerate(spec)
        for key, item in pairs:
            yield from containers(item, f"{path}[{key!r}]")


def difference(spec: Any, value: Any, path: str, *, open_dims: Mapping[str, set[int]]) -> Difference | None:
    """Return the first difference between an argument and its spec; symbols are checked elsewhere.

    `open_dims` are the dims of examples whose sizes are gears, by path.
    """
    if isinstance(spec, TensorSpec):
        return _tensor_difference(spec, value, path, open_dims.get(path, set()))
    if isinstance(spec, _CONTAINERS):
        expected_text = f"a {type(spec).__name__} of {len(spec)}, as its spec says"
        if not isinstance(value, type(spec)):
            return path, a_type(value), expected_text
        if len(value) != len(spec):
            return path, f"a {type(spec).__name__} of {len(value)}", expected_text
        if isinstance(spec, dict) and set(spec) != set(value):
            return path, f"a dict of {', '.join(map(repr, value))}", f"one of {', '.join(map(repr, spec))}"
        for key, item in spec.items() if isinstance(spec, dict) else enumerate(spec):
            inner_difference = difference(item, value[key], f"{path}[{key!r}]", open_dims=open_dims)
            if inner_difference is not None:
                return inner_difference
        return None
    if type(value) is type(spec) and (value == spec or (spec != spec and value != value)):  # nan matches nan
        return None
    return path, repr(value) if type(value) in _VALUES else a_type(value), f"{spec!r}, as its spec says"


def _tensor_difference(spec: TensorSpec, value: Any, path: str, open_dims: set[int]) -> Difference | None:
    if not isinstance(value, torch.Tensor):
        value_text = repr(value) if type(value) in _VALUES else a_type(value)
        return path, value_text, f"a tensor of {spec.dtype} and shape {spec.shape_text}, as its spec says"
    if value.dtype != spec.dtype:
        return path, f"of dtype {value.dtype}", f"dtype {spec.dtype}, as its spec says"
    if value.dim() != spec.rank:
        return path, f"of rank {value.dim()}", f"rank {spec.rank}, as its spec says: shape {spec.shape_text}"
    for dim, size in enumerate(spec.shape):
        if isinstance(size, int) and dim not in open_dims and value.size(dim) != size:
            return path, f"of shape {tuple(value.shape)}", f"shape {spec.shape_text}, as its spec says"
    if spec.device is not None and value.device.type != spec.device.type:
        return path, f"on device {value.device}", f"device {spec.device}, as its spec says"
    return None
