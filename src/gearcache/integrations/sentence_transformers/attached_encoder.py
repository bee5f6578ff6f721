"""Defines `AttachedEncoder`, the result of `attach_encode`: a model whose `encode` runs from graphs."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch

from gearcache.attaching.attachment import Attachment
from gearcache.errors import CaptureError, CompileError, GearSpecError, InputError, PaddedResultError, UnknownGear
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.integrations.sentence_transformers.layout import ModelClasses
from gearcache.integrations.sentence_transformers.text_features import TextFeatures, UnservedTexts, made_features
from gearcache.serving.call.parameters import Parameters

logger = logging.getLogger("gearcache")


class AttachedEncoder(Attachment):
    """What `attach_encode` returns: an `Attachment` that lets the model itself serve calls without a graph.

    Training (autograd on, or `model.train()`) works as before.
    """

    def __init__(self, model: Any, parameters: Parameters, features: TextFeatures, on_miss: str) -> None:
        super().__init__(model, parameters)
        self._features = features
        self._on_miss = on_miss
        self._layout = ModelClasses(model)
        self._warned_reasons: set[str] = set()

    def warm(self, /, *args: Any, **kwargs: Any) -> None:
        """Compile and load every graph, without running any; needs no text."""
        if args or kwargs:
            raise TypeError("warm takes no arguments: batch= and sequence= of `attach_encode` say what the graphs take")
        features = self._features.read(made_features(self.module))
        assert not isinstance(features, UnservedTexts), features
        with torch.inference_mode():
            super().warm(features)

    def _call_forward(self, /, *args: Any, **kwargs: Any) -> Any:
        if private_core.is_traced() or torch.compiler.is_compiling():
            return self.module.forward(*args, **kwargs)
        if self.module.training or torch.is_grad_enabled():
            self.method.count_eager("training")
            return self.module.forward(*args, **kwargs)
        features_or_miss = self._read(args, kwargs)
        if not isinstance(features_or_miss, UnservedTexts):
            try:
                results = super()._call_forward(features_or_miss)
            except (CaptureError, CompileError, GearSpecError, InputError, PaddedResultError) as error:
                if self._on_miss == "raise":
                    raise
                features_or_miss = _miss_of(error)
            else:
                args[0].update(results)  # the forward writes into its argument, too
                return args[0]
        elif self._on_miss == "raise":
            raise UnknownGear(self.name, features_or_miss.reason, features_or_miss.value, features_or_miss.allowed)
        self._count(features_or_miss)
        return self.module.forward(*args, **kwargs)

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | UnservedTexts:
        """Return the tensors of a call that a graph takes, or the reason why no graph takes them."""
        layout = ModelClasses(self.module)
        if len(args) != 1 or not layout.ignores(kwargs):
            return UnservedTexts("features", f"{len(args)} arguments and {sorted(kwargs)}", "features alone")
        if layout != self._layout:
            return UnservedTexts("modules", "the model has other modules than those attached", "attach it anew")
        features_or_miss = self._features.read(args[0])
        if isinstance(features_or_miss, UnservedTexts) or "prompt_length" not in args[0]:
            return features_or_miss
        if layout.drops_prompts or not layout.is_known:
            return UnservedTexts("prompt", "a module may read how long the prompt is", "poolings that include prompts")
        return features_or_miss

    def _count(self, miss: UnservedTexts) -> None:
        self.method.count_eager(miss.reason)
        if miss.reason not in self._warned_reasons:
            self._warned_reasons.add(miss.reason)
            logger.warning("`%s` runs without a graph: %s", self.name, miss)

    def __deepcopy__(self, memo: dict[int, Any]) -> AttachedEncoder:
        model = copy.deepcopy(self.module, memo)
        return AttachedEncoder(model, self._parameters, self._features, self._on_miss)

    def __reduce__(self) -> Any:
        return AttachedEncoder, (self.module, self._parameters, self._features, self._on_miss)


def _miss_of(error: Exception) -> UnservedTexts:
    if isinstance(error, UnknownGear):
        return UnservedTexts("size", str(error), "up to the largest sizes")
    return UnservedTexts("no graph", str(error), "what a graph can be made of")
