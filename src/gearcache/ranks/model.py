"""The model that the ranks of a job agree on: its objects with a `warm`, and the methods that may not compile alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from gearcache.attaching.attachment import Attachment
from gearcache.guards.evidence.names import a_type
from gearcache.prewarming.reach import Reach
from gearcache.serving.call.build_right import mark, unmark
from gearcache.serving.call.method import CachedMethod


class Model:
    """The argument of `gearcache.agree`: modules, attachments and cached methods, alone or in lists, tuples and dicts.

    `TypeError` for anything else.
    """

    def __init__(self, model: Any) -> None:
        items = list(_flat_items(model))
        # The result of an integration has its own `warm`, and does not expose its methods.
        others = [item for item in items if not isinstance(item, (torch.nn.Module, CachedMethod))]
        reach = Reach(*items)
        near_methods = [item.method if isinstance(item, Attachment) else item for item in reach.held]
        #: The objects that the ranks agree on.
        self.warmable = list({id(item): item for item in (*reach.held, *others)}.values())
        #: The cached methods that stand for the model in messages.
        self.named = near_methods or reach.methods
        self._modules, self._methods = reach.modules, reach.methods

    def add(self, methods: Iterable[CachedMethod]) -> None:
        """Add further methods, which `warm` has named."""
        self._methods += methods

    def withdraw(self) -> None:
        """Let no method compile alone, including methods that are made from these modules later."""
        for module in self._modules:
            mark(module)
        for method in self._methods:
            method.right.withdraw()

    def give_back(self) -> None:
        """Let all methods compile as they do without a job."""
        for module in self._modules:
            unmark(module)
        for method in self._methods:
            method.right.give_back()


def _flat_items(model: Any) -> Iterator[Any]:
    if isinstance(model, (list, tuple)):
        for item in model:
            yield from _flat_items(item)
    elif isinstance(model, Mapping):
        yield from _flat_items(list(model.values()))
    elif isinstance(model, torch.nn.Module) or callable(getattr(model, "warm", None)):
        yield model
    else:
        raise TypeError(f"agree: model is {a_type(model)}; it is a module, or what cache_compile or attach returns")
