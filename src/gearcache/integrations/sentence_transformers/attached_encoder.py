"""Defines `AttachedEncoder`, the result of `attach_encode`: a model whose `encode` runs from graphs."""

from __future__ import annotations

import copy
from typing import Any

import torch

from gearcache.attaching.attachment import Attachment
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.integrations.misses import Misses, UnservedCall
from gearcache.integrations.sentence_transformers.layout import ModelClasses
from gearcache.integrations.sentence_transformers.text_features import TextFeatures, made_features
from gearcache.serving.call.parameters import Parameters


class AttachedEncoder(Attachment):
    """What `attach_encode` returns: an `Attachment` that lets the model itself serve calls without a graph.

    Training (autograd on, or `model.train()`) works as before.
    """

    def __init__(self, model: Any, parameters: Parameters, features: TextFeatures, on_miss: str) -> None:
        super().__init__(model, parameters)
        self._features = features
        self._on_miss = on_miss
        self._layout = ModelClasses(model)
        self._misses = Misses(self.name, on_miss, lambda reason: self.method.count_eager(reason))

    def warm(self, /, *args: Any, **kwargs: Any) -> None:
        """Compile and load every graph, without running any; needs no text."""
        if args or kwargs:
            raise TypeError("warm takes no arguments: batch= and sequence= of `attach_encode` say what the graphs take")
        features = self._features.read(made_features(self.module))
        assert not isinstance(features, UnservedCall), features
        with torch.inference_mode():
            super().warm(features)

    def _call_forward(self, /, *args: Any, **kwargs: Any) -> Any:
        if private_core.is_traced() or torch.compiler.is_compiling():
            return self.module.forward(*args, **kwargs)
        if self.module.training or torch.is_grad_enabled():
            self.method.count_eager("training")
            return self.module.forward(*args, **kwargs)
        results = self._misses.attempt(self._graph_results, args, kwargs)
        if isinstance(results, UnservedCall):
            self._misses.leave(results)
            return self.module.forward(*args, **kwargs)
        args[0].update(results)  # the forward writes into its argument, too
        return args[0]

    def _graph_results(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        features = self._read(args, kwargs)
        return features if isinstance(features, UnservedCall) else super()._call_forward(features)

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | UnservedCall:
        """Return the tensors of a call that a graph takes, or the reason why no graph takes them."""
        layout = ModelClasses(self.module)
        if len(args) != 1 or not layout.ignores(kwargs):
            return UnservedCall("features", f"one of {len(args)} arguments, with {sorted(kwargs)}", "features alone")
        if layout != self._layout:
            return UnservedCall("modules", "others than those attached", "the attached ones; attach the model anew")
        features_or_miss = self._features.read(args[0])
        if isinstance(features_or_miss, UnservedCall) or "prompt_length" not in args[0]:
            return features_or_miss
        if layout.drops_prompts or not layout.is_known:
            return UnservedCall("prompt", "one whose length a module may read", "poolings that include prompts")
        return features_or_miss

    def __deepcopy__(self, memo: dict[int, Any]) -> AttachedEncoder:
        model = copy.deepcopy(self.module, memo)
        return AttachedEncoder(model, self._parameters, self._features, self._on_miss)

    def __reduce__(self) -> Any:
        return AttachedEncoder, (self.module, self._parameters, self._features, self._on_miss)
