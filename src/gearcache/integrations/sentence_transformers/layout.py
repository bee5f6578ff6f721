"""Describes the modules of a sentence-transformers model, and decides whether its texts may be filled up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    Router,
    Transformer,
)

from gearcache.ge_cache.private_torch.module_hooks import has_hooks

#: `model_type` of the transformers models for which tests show that filling behind the mask changes no result
#: (tests/integrations/test_sentences.py). In each of them a token sees others through the mask alone.
TRIED = frozenset(
    ("albert", "bert", "camembert", "distilbert", "electra", "mpnet", "qwen3", "roberta", "t5", "xlm-roberta")
)
#: Modules after the pooling that work on each vector by itself.
_AFTER = (Dense, Dropout, LayerNorm, Normalize)
_BY_ELEMENT = (torch.nn.Identity, torch.nn.Tanh, torch.nn.ReLU, torch.nn.GELU, torch.nn.Sigmoid, torch.nn.SiLU)
_ATTENTION = ("eager", "sdpa")
#: Modules of torch that work on each token by itself, or run nothing.
_BY_TOKEN = (
    *_BY_ELEMENT,
    torch.nn.Dropout,
    torch.nn.Embedding,
    torch.nn.LayerNorm,
    torch.nn.Linear,
    torch.nn.ModuleDict,
    torch.nn.ModuleList,
    torch.nn.RMSNorm,
)
#: Libraries whose modules were tried unmodified.
_LIBRARIES = ("transformers.", "sentence_transformers.")


class ModelClasses:
    """The classes of a model's modules at one time. Models with equal layouts treat filling alike."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._modules = tuple(model.children())
        self._classes = tuple(map(_class_of, self._modules))
        #: The class of each inner module, or None if the module may differ from what its library wrote.
        self._inner_classes = tuple(
            map(_class_inside, (inner for module in self._modules for inner in module.modules()))
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelClasses) and (self._classes, self._inner_classes) == (
            other._classes,
            other._inner_classes,
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_known(self) -> bool:
        """Whether gearcache vouches that filling behind the mask reaches no result.

        sentence-transformers itself fills up the shorter texts of a batch, and masks them.
        """
        if len(self._modules) < 2 or type(self._modules[0]) is not Transformer or type(self._modules[1]) is not Pooling:
            return False
        if None in self._inner_classes:
            return False
        return _is_tried(self._modules[0]) and all(map(_is_by_vector, self._modules[2:]))

    def ignores(self, names: Collection[str]) -> bool:
        """Whether no module receives arguments of these names, which `forward` takes beside the features.

        `encode_query` and `encode_document` pass `task`, which a `Router` reads.
        """
        if not type(self._model).forward.__module__.startswith("sentence_transformers."):
            return False
        keywords = self._model.module_kwargs or {}
        return not any(
            isinstance(module, Router)
            or any(name in keywords.get(child, ()) or name in getattr(module, "forward_kwargs", ()) for name in names)
            for child, module in self._model.named_children()
        )

    @property
    def drops_prompts(self) -> bool:
        """Whether a pooling leaves out the tokens of a prompt, whose number it reads."""
        return any(getattr(module, "include_prompt", True) is not True for module in self._modules)


def _class_of(module: Any) -> Any:
    inner = getattr(module, "auto_model", None)
    if inner is None:
        return type(module), type(getattr(module, "activation_function", None))
    return type(module), type(inner), getattr(inner.config, "_attn_implementation", None)


def _class_inside(module: Any) -> Any:
    """Return the class of a module that runs its library's code unmodified; None if it has hooks or other code."""
    kind, own = type(module), vars(module)
    if "forward" in own or has_hooks(module):
        return None
    if kind in _BY_TOKEN:
        return kind if kind.forward.__module__.startswith("torch.nn.") else None
    code = getattr(kind, "forward", None)
    is_as_written = kind.__module__.startswith(_LIBRARIES) and getattr(code, "__module__", "").startswith(_LIBRARIES)
    return kind if is_as_written else None


def _is_tried(transformer: Any) -> bool:
    inner, text = transformer.auto_model, transformer.modality_config.get("text", {})
    return (
        # A user's class may have the same name as a tried one.
        type(inner).__module__.startswith("transformers.models.")
        and inner.config.model_type in TRIED
        and inner.config._attn_implementation in _ATTENTION
        and not getattr(inner.config, "is_decoder", False)
        and text == {"method": "forward", "method_output_name": "last_hidden_state"}
        and transformer.module_output_name == "token_embeddings"
    )


def _is_by_vector(module: Any) -> bool:
    if type(module) not in _AFTER:
        return False
    return type(module) is not Dense or type(module.activation_function) in _BY_ELEMENT
