"""Selects the tensors that graphs take from the features that `encode` makes of texts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from gearcache.errors import UnsupportedMethod
from gearcache.guards.evidence.names import a_type
from gearcache.integrations.misses import UnservedCall

#: Features with a batch and a length, and the tokenizer attribute that holds the filling of each.
_FILLED_BY = {"input_ids": "pad_token_id", "attention_mask": None, "token_type_ids": "pad_token_type_id"}
#: Features that a tried model does not read, or only compares with "text".
_OTHERS = ("modality", "prompt_length")


class TextFeatures:
    """The tensors that a model reads of a text. Raises `UnsupportedMethod` for a model that reads anything else."""

    def __init__(self, model: Any) -> None:
        if not isinstance(model, SentenceTransformer):
            raise UnsupportedMethod(
                f"attach_encode: the model is {a_type(model)}; it must be a SentenceTransformer; "
                "`gearcache.attach` takes any module"
            )
        features = made_features(model)
        read_names = _read_by(getattr(model, "transformers_model", None))
        #: Names in the order in which graphs take them.
        self.names = [name for name in _FILLED_BY if name in features and (read_names is None or name in read_names)]
        #: Names that a call may contain beside these.
        self._other_names = {*_OTHERS, *(name for name in _FILLED_BY if name in features and name not in self.names)}
        for name, value in features.items():
            is_text = name in self._other_names or (isinstance(value, torch.Tensor) and value.dim() == 2)
            if not is_text or name not in {*self.names, *self._other_names}:
                raise UnsupportedMethod(
                    f"attach_encode: the feature `{name}` of {a_type(model)} is {_in_words(value)}; only "
                    f"{', '.join(_FILLED_BY)} of shape (batch, length) can be filled up to the next size"
                )
        if self.names[:2] != ["input_ids", "attention_mask"]:
            raise UnsupportedMethod(
                f"attach_encode: {a_type(model)} makes {', '.join(features)} of a text; it needs input_ids, and "
                "an attention_mask that keeps filling out of the results"
            )
        tokenizer = model.tokenizer
        fills = {name: getattr(tokenizer, _FILLED_BY[name] or "", None) for name in self.names}
        #: Path of each tensor -> the value of its filling.
        self.fills = {f"input[{name!r}]": int(value or 0) for name, value in fills.items()}

    def read(self, features: Any) -> dict[str, Any] | UnservedCall:
        """Return the tensors of a call that a graph takes, or the reason why no graph takes them."""
        allowed = f"{', '.join(self.names)} of texts"
        if not isinstance(features, Mapping):
            return UnservedCall("features", a_type(features), allowed)
        for name in features:
            if name not in self.names and name not in self._other_names:
                return UnservedCall("features", f"one with `{name}`", allowed)
        if features.get("modality", "text") != "text":
            return UnservedCall("features", f"of the modality {features['modality']!r}", "'text'")
        tensors: dict[str, Any] = {name: features.get(name) for name in self.names}
        shape = getattr(tensors["input_ids"], "shape", None)
        for name, value in tensors.items():
            if (
                type(value) is not torch.Tensor
                or value.dim() != 2
                or value.dtype != torch.int64
                or value.shape != shape
                or 0 in value.shape
            ):
                return UnservedCall(
                    "features", f"one whose `{name}` is {_in_words(value)}", "int64 of shape (batch, length) for all"
                )
        # The result of such a text depends on the number of masked tokens, because all of them are seen equally.
        if not bool(tensors["attention_mask"].any(1).all()):
            return UnservedCall("empty text", "one of which the mask shows no token", "texts of at least one token")
        return {**{name: value.contiguous() for name, value in tensors.items()}, "modality": "text"}


def made_features(model: Any) -> Any:
    """Return the features of one text, on the device of the model, as `encode` makes them."""
    try:
        features = model.preprocess(["a"], prompt=None)
    except Exception as error:
        raise UnsupportedMethod(
            f"attach_encode: {a_type(model)} makes no features of a text ({type(error).__name__}: {error})"
        ) from error
    return {name: value.to(model.device) if hasattr(value, "to") else value for name, value in features.items()}


def _read_by(model: Any) -> set[str] | None:
    """Return the features that a transformers model reads; None if that is not known.

    BERT tokenizers make `token_type_ids` for any model, and some models accept them without using them.
    """
    if model is None:
        return None
    parameters = set(inspect.signature(model.forward).parameters) | {"input_ids", "attention_mask"}
    return parameters - ({"token_type_ids"} if getattr(model.config, "type_vocab_size", 1) == 0 else set())


def _in_words(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} with the shape {tuple(value.shape)}"
    return repr(value) if value is None else a_type(value)
