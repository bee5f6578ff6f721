"""Edits that any model allows: of its parameters and buffers, its mode, its copies."""

from __future__ import annotations

import random
from typing import Any

import torch

from benchmarks.fuzz.builder import Edit
from gearcache.cache.keys.module_tree import named_buffers, named_parameters

#: Python cannot load an object's private method (`self.__compute` kept in an attribute); it can load a `CachedMethod`.
_PICKLED = """import copy, pickle
try:
    m = pickle.loads(pickle.dumps(m))
except AttributeError:
    m = copy.deepcopy(m)"""


def model_edits(model: torch.nn.Module, chance: random.Random) -> list[Edit]:
    """Return a few random edits of a live model."""
    edits: list[Edit] = []
    names = [name for name, _ in named_parameters(model) if name.replace(".", "_").isidentifier()]
    buffers = [name for name, _ in named_buffers(model) if name.replace(".", "_").isidentifier()]
    if names:
        name = chance.choice(names)
        edits += _parameter_edits(_path("m", name), dict(named_parameters(model))[name])
    if buffers:
        edits += _buffer_edits(_path("m", chance.choice(buffers)))
    if names or buffers:
        edits += [
            Edit("2 weights double and back", "m.double(); m.float()"),
            Edit("2 weights bfloat16 and back", "m.bfloat16(); m.float()"),
            Edit("2 weights double", "m.double()"),
            Edit(
                "2 swap on conversion",
                "torch.__future__.set_swap_module_params_on_conversion(True); m.double(); m.float(); "
                "torch.__future__.set_swap_module_params_on_conversion(False)",
            ),
            # torch itself crashes on a subclass that has no memory of its own
            Edit(
                "2 shared memory",
                "all(type(value) is torch.Tensor for value in m.state_dict().values()) and m.share_memory()",
            ),
            Edit("2 state assigned", "m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}, assign=True)"),
            Edit("2 state loaded", "m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})"),
            Edit("2 requires grad", "m.requires_grad_(False)"),
            Edit("2 zero weights", "torch.manual_seed(1)\nfor p in m.parameters(): torch.nn.init.normal_(p)"),
        ]
    edits += [
        Edit("2 copy", "m = copy.copy(m)"),
        Edit("2 copy, original changed", _changed_copy("copy.copy(m)")),
        Edit("2 deep copy", "m = copy.deepcopy(m)"),
        Edit("2 deep copy, original changed", _changed_copy("copy.deepcopy(m)")),
        Edit("2 copy of the dictionary", "old = m; m = s.Model.__new__(s.Model); m.__dict__.update(old.__dict__)"),
        Edit("2 replica", "m = m._replicate_for_data_parallel()"),
        Edit("2 train", "m.train(not m.training)"),
        Edit("2 pickled", _PICKLED),
        Edit("2 another instance", "torch.manual_seed(77); m = s.Model()"),
        Edit("nothing", "pass"),
    ]
    return chance.sample(edits, min(len(edits), 6))


def _changed_copy(how: str) -> str:
    return (
        f"old = m; m = {how}\n"
        "for name, p in list(m._parameters.items()): m._parameters[name] = torch.nn.Parameter(p.detach() * 2)\n"
        "for name, b in list(m._buffers.items()): m._buffers[name] = b * 2\n"
        "m._modules = {name: copy.deepcopy(child) for name, child in m._modules.items()}\n"
        "for child in m._modules.values():\n    for p in child.parameters(): p.data.mul_(3)"
    )


def _parameter_edits(path: str, value: Any) -> list[Edit]:
    owner, _, name = path.rpartition(".")
    shape = tuple(value.shape)
    dtype = str(value.dtype).removeprefix("torch.")
    new = f"tensor({shape}, 7, '{dtype}')"
    return [
        Edit("2 weights in place", f"{path}.data.mul_(2)"),
        Edit("2 weights in place", f"with torch.no_grad(): {path}.add_(1.0)"),
        Edit("2 weight data", f"if not {path}.is_inference(): {path}.data = {new}"),
        Edit("2 weight data", f"{path}.data = {path}.data.clone() * 2"),
        Edit("2 weight data strided", f"{path}.data = torch.cat([{new}, {new}], -1)[..., ::2]"),
        Edit("2 parameter replaced", f"{path} = torch.nn.Parameter({new})"),
        Edit("2 parameter replaced", f"{owner}._parameters['{name}'] = torch.nn.Parameter({new})"),
        Edit("2 parameter deleted", f"del {path}; {path} = {new}"),
        Edit(
            "2 weight storage resized",
            f"q = {path}.data.clone(); z = {path}.untyped_storage().nbytes(); {path}.is_shared() or {path}.untyped_storage().resize_(0); {path}.is_shared() or {path}.untyped_storage().resize_(z); {path}.data.copy_(q)",
        ),
        Edit("2 weight set", f"{path}.data.set_({new})"),
    ]


def _buffer_edits(path: str) -> list[Edit]:
    owner, _, name = path.rpartition(".")
    return [
        Edit("2 buffer in place", f"{path}.add_(1)"),
        Edit("2 buffer replaced", f"{path} = {path} * 2 + 1"),
        Edit("2 buffer replaced", f"{owner}._buffers['{name}'] = {path} * 2 + 1"),
        Edit("2 buffer data", f"{path}.data = {path}.clone() + 3"),
        Edit("2 buffer deleted", f"q = {path}; del {path}; {path} = q * 2"),
    ]


def _path(root: str, name: str) -> str:
    parts = [f"[{part}]" if part.isdigit() else f".{part}" for part in name.split(".")]
    return root + "".join(parts)
