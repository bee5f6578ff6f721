"""`attach`: `model.encode(...)` of sentence-transformers runs from graphs for batches and lengths, kept on disk."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from gearcache.attaching.attachment import Attachment
from gearcache.errors import GearSpecError, OptionError, UnsupportedMethod
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.symbol import Symbol
from gearcache.options import CompilerConfig
from gearcache.serving.parameters import Parameters

#: The parameter of `forward` that all features come in.
_FEATURES = "input"
#: Features that have a batch and a length, and the attribute of the tokenizer that says what fills them.
_FILLED_BY = {"input_ids": "pad_token_id", "attention_mask": None, "token_type_ids": "pad_token_type_id"}
#: Lengths of graphs where the user names none: from the first one by this factor up to the longest text.
_SHORTEST, _FACTOR = 16, 2
_MOST = 1 << 20


class AttachedEncoder(Attachment):
    """What `attach` returns: an `Attachment` whose `warm` makes the features itself."""

    def warm(self, /, *args: Any, prompt: str | None = None, **kwargs: Any) -> None:
        """Compile and load every graph, without running any.

        - `prompt`: what `encode(prompt=)` will get; the text of the model's default prompt where none is given. Each
          length of a prompt, in tokens, has graphs of its own.
        - Other arguments are those of the model's `forward`: features as `model.preprocess` makes them.
        """
        if not args and _FEATURES not in kwargs:
            args = (_features(self.module, _default_prompt(self.module) if prompt is None else prompt),)
        super().warm(*args, **kwargs)


def attach(
    model: torch.nn.Module,
    /,
    *,
    batch: Sequence[int] = (1, 8, 32),
    sequence: Sequence[int] | None = None,
    config: Any = None,
    **options: Any,
) -> AttachedEncoder:
    """Have `encode(...)` of a model of sentence-transformers run from graphs kept on disk.

    - `model`: a `SentenceTransformer`, `SparseEncoder` or `CrossEncoder` (`predict`) that reads texts.
    - `batch`: numbers of texts; between two of them a call is filled up. `encode(batch_size=)` must not be above the
      largest one.
    - `sequence`: lengths in tokens; None is 16, 32, 64 and so on up to `model.max_seq_length`, so that no text is too
      long. There is one graph for each pair of batch and length.
    - `config`: a `CompilerConfig`; its `on_miss` is `"pad"`.
    - `options`: `cache_dir`, ranks and others of `cache_compile`.

    Raises `UnsupportedMethod` for a model that does not read texts, `GearSpecError` for sizes that make no sense,
    `OptionError` for another `on_miss`, and what `gearcache.attach` raises. A model of which it cannot be shown that the
    filling reaches no result is refused by the first call, with the name of the operator.
    """
    for name in ("gears", "input_signature", "dynamic"):
        if name in options:
            raise TypeError(f"attach takes no `{name}`: batch= and sequence= say what the graphs take")
    if not isinstance(config, (CompilerConfig, type(None))):
        raise TypeError(f"attach: config is {a_type(type(config))}; it must be a gearcache.CompilerConfig or None")
    config = config or CompilerConfig()
    if config.on_miss not in (None, "pad"):
        raise OptionError(
            f"option `on_miss` is {config.on_miss!r}; for a model of sentence-transformers it is 'pad': texts have any "
            "length; `gearcache.attach` takes the others"
        )
    features = _features(model, None)
    path = f"{_FEATURES}.data" if isinstance(features, UserDict) else _FEATURES
    fills = {f"{path}[{name!r}]": value for name, value in _fills(model, features).items()}
    rows = Symbol("batch", gears=_sizes("batch", batch))
    length = Symbol("sequence", gears=_lengths(model) if sequence is None else _sizes("sequence", sequence))
    parameters = Parameters(
        config=replace(
            config,
            on_miss="pad",
            pad_values={**fills, **config.pad_values},
        ),
        # Named for each: where a batch of 1 is traced, nothing ties the mask to the ids.
        gears={name: {0: rows, 1: length} for name in fills},
        **options,
    )
    attached = AttachedEncoder(model, parameters)
    attached.attach()
    return attached


def _features(model: Any, prompt: str | None) -> Mapping[str, Any]:
    """Return the features of one text, on the device of the model, as `encode` makes them."""
    text: Any = "a" if hasattr(model, "encode") else ("a", "a")
    try:
        features = model.preprocess([text], prompt=prompt)
        ids = features["input_ids"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedMethod(
            f"attach: {a_type(type(model))} does not make `input_ids` of a text ({type(error).__name__}: {error}); it "
            "takes models of sentence-transformers 6.2 and newer that read texts; `gearcache.attach` takes any module"
        ) from error
    for name, value in features.items():
        if isinstance(value, torch.Tensor):
            features[name] = value.to(getattr(model, "device", ids.device))
    return features  # type: ignore[no-any-return]


def _fills(model: Any, features: Mapping[str, Any]) -> dict[str, int]:
    """Return what the tokenizer fills each tensor with."""
    found = {}
    read = _read_by(getattr(model, "transformers_model", None))
    for name, value in features.items():
        if not isinstance(value, torch.Tensor) or (read is not None and name not in read):
            continue
        if name not in _FILLED_BY or value.dim() != 2:
            raise UnsupportedMethod(
                f"attach: the feature `{name}` of {a_type(type(model))} is a tensor of shape {tuple(value.shape)}; only "
                f"{', '.join(_FILLED_BY)} of shape (batch, length) can be filled up to the next size"
            )
        attribute = _FILLED_BY[name]
        fill = 0 if attribute is None else getattr(model.tokenizer, attribute, None)
        found[name] = int(fill or 0)
    if "attention_mask" not in found:
        raise UnsupportedMethod(
            f"attach: {a_type(type(model))} makes no `attention_mask`, which keeps filling out of the results"
        )
    return found


def _read_by(model: Any) -> set[str] | None:
    """Return the features that a model of transformers reads; None where that is not known.

    Tokenizers of BERT make `token_type_ids` for any model, and some models take them and have none.
    """
    if model is None:
        return None
    parameters = set(inspect.signature(model.forward).parameters) | {"input_ids", "attention_mask"}
    return parameters - ({"token_type_ids"} if getattr(model.config, "type_vocab_size", 1) == 0 else set())


def _lengths(model: Any) -> list[int]:
    longest = getattr(model, "max_seq_length", None)
    if not isinstance(longest, int) or not 0 < longest <= _MOST:
        raise GearSpecError(f"attach: sequence is None and `max_seq_length` of the model {longest!r}; name the lengths")
    found, length = [], _SHORTEST
    while length < longest:
        found.append(length)
        length *= _FACTOR
    return [*found, longest]


def _sizes(name: str, given: Any) -> list[int]:
    sizes = list(given) if isinstance(given, (list, tuple, range)) else []
    if not sizes or any(isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= _MOST for size in sizes):
        raise GearSpecError(f"attach: {name} is {given!r}; it must be a list of ints from 1 to {_MOST}")
    return sorted(set(sizes))


def _default_prompt(model: Any) -> str | None:
    name = getattr(model, "default_prompt_name", None)
    return None if name is None else model.prompts.get(name)
