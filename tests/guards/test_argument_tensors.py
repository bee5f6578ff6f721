"""Tensors inside arguments: found by path, exchanged without touching the caller's containers."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from gearcache.guards.arguments import find_tensors, replace_tensors

Pair = namedtuple("Pair", ["left", "right"])


@dataclass(frozen=True)
class Frozen:
    value: torch.Tensor
    other: Any = None


def _arguments() -> tuple[dict[str, Any], list[torch.Tensor]]:
    t = [torch.full((2,), float(index)) for index in range(9)]
    arguments = {
        "x": t[0],
        "items": [t[1], (t[2], {"k": t[3], 4: t[4]})],
        "pair": Pair(t[5], 3),
        "frozen": Frozen(t[6]),
        "plain": SimpleNamespace(a=t[7], b=[None, "text"]),
        "ordered": OrderedDict(z=t[8]),
        "module": nn.Linear(2, 2),
        "function": lambda: None,
    }
    return arguments, t


def test_every_tensor_is_found_by_the_path_a_user_would_write() -> None:
    arguments, t = _arguments()
    found = find_tensors(arguments)
    paths = ["x", "items[0]", "items[1][0]", "items[1][1]['k']", "items[1][1][4]"]
    paths += ["pair.left", "frozen.value", "plain.a", "ordered['z']"]
    assert list(found) == paths
    assert all(found[path] is tensor for path, tensor in zip(paths, t, strict=True))


def test_replacing_changes_what_was_asked_and_leaves_the_caller_s_objects_alone() -> None:
    arguments, t = _arguments()
    new = [tensor + 100 for tensor in t]
    made = replace_tensors(arguments, {id(old): fresh for old, fresh in zip(t, new, strict=True)})
    assert all(left is right for left, right in zip(find_tensors(made).values(), new, strict=True))
    assert all(left is right for left, right in zip(find_tensors(arguments).values(), t, strict=True))
    assert type(made["pair"]) is Pair
    assert type(made["ordered"]) is OrderedDict
    assert made["module"] is arguments["module"]
