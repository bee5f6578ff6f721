"""The model that the ranks of a job agree on: its objects with a `warm`, and the methods that may not compile alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from gearcache.attaching.attachment import Attachment
from gearcache.guards.evidence.names import a_type
from gearcache.prewarming.reach import Reach
from gearcache.serving.call.build_right import mark, mark_of, unmark
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
        self._agreed = [*near_methods, *reach.methods_of(reach.modules)]
        self._modules, self._far_modules = reach.modules, reach.far_modules
        self._methods = reach.methods

    def add(self, methods: Iterable[CachedMethod]) -> None:
        """Add further methods, which `warm` has named."""
        further = list(methods)
        self._agreed += further
        self._methods += further

    def withdraw(self, *, is_eager: bool | None = None) -> None:
        """Let no method compile alone, including methods that are made from these modules later.

        `is_eager`: whether the agreed methods run without graphs; None leaves that unchanged.
        """
        for module in (*self._modules, *self._far_modules):
            mark(module, is_eager=bool(mark_of(module)))
        for method in self._methods:
            method.right.withdraw(is_eager=method.right.is_eager)
        if is_eager is not None:
            for module in self._modules:
                mark(module, is_eager=is_eager)
            for method in self._agreed:
                method.right.withdraw(is_eager=is_eager)
                method.follow_stance()

    def give_back(self) -> None:
        """Let all methods compile as they do without a job."""
        for module in (*self._modules, *self._far_modules):
            unmark(module)
        for method in self._methods:
            method.right.give_back()
            method.follow_stance()


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
