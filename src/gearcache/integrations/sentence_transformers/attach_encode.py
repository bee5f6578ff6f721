"""`attach_encode`: attaches a sentence-transformers model in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gearcache.errors import GearSpecError, OptionError
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.symbol import Symbol
from gearcache.integrations.attach_arguments import check_options, on_miss_of, sizes_of
from gearcache.integrations.sentence_transformers.attached_encoder import AttachedEncoder
from gearcache.integrations.sentence_transformers.layout import ModelClasses
from gearcache.integrations.sentence_transformers.text_features import TextFeatures
from gearcache.options import CompilerConfig
from gearcache.serving.call.parameters import Parameters

#: Default lengths of graphs: from the first one, multiplied by this factor, up to the last one.
_SHORTEST, _FACTOR, _LONGEST = 16, 2, 512
_MOST = 1 << 20


def attach_encode(
    model: Any,
    /,
    *,
    batch: Sequence[int] = (1, 8, 32),
    sequence: Sequence[int] | None = None,
    config: Any = None,
    **options: Any,
) -> AttachedEncoder:
    """Have `model.encode(...)` run from graphs kept on disk. Its arguments and results stay the same.

    - `model`: a `SentenceTransformer` that reads texts.
    - `batch`: numbers of texts; a call between two of them is padded to the larger one.
    - `sequence`: lengths in tokens, the same way; None is 16, 32, 64 and so on up to `model.max_seq_length`, and to 512
      at most. There is one graph for each pair of batch and length.
    - `config`: a `CompilerConfig`. `on_miss="eager"` (the default) has the model itself serve what no graph serves,
      counted in `stats.eager_reasons`, with one warning for each reason; `"raise"` raises `UnknownGear`. `filling` is
      "vouched" for the models that were tried (docs/sentence-transformers.md); for others it is what the config says.
    - `options`: `cache_dir`, ranks and others of `cache_compile`.

    Raises `UnsupportedMethod` for a model that does not read texts, `GearSpecError` for invalid sizes,
    `OptionError` for another `on_miss`, and `AlreadyAttached` for a model whose calls are served already.
    """
    check_options("attach_encode", options, "batch= and sequence=")
    if not isinstance(config, (CompilerConfig, type(None))):
        raise TypeError(f"attach_encode: config is {a_type(config)}; it must be a gearcache.CompilerConfig or None")
    config = config or CompilerConfig()
    on_miss = on_miss_of(config, "sentence-transformers", "texts")
    if config.pad_values:
        raise OptionError(
            f"option `pad_values` is {config.pad_values!r}; for a model of sentence-transformers it must be empty: the "
            "tokenizer says what texts are filled up with"
        )
    features = TextFeatures(model)
    batches = sizes_of("attach_encode", "batch", batch, _MOST)
    lengths = _lengths(model) if sequence is None else sizes_of("attach_encode", "sequence", sequence, _MOST)
    rows, length = Symbol("batch", gears=batches), Symbol("sequence", gears=lengths)
    parameters = Parameters(
        config=replace(
            config,
            on_miss="pad",
            pad_values=features.fills,
            filling="vouched" if ModelClasses(model).is_known else config.filling,
        ),
        # Named for each tensor: a trace with a batch of 1 does not tie the mask to the ids.
        gears={path: {0: rows, 1: length} for path in features.fills},
        **options,
    )
    encoder = AttachedEncoder(model, parameters, features, on_miss)
    encoder.attach()
    return encoder


def _lengths(model: Any) -> list[int]:
    longest = model.max_seq_length
    if not isinstance(longest, int) or not 0 < longest <= _MOST:
        raise GearSpecError(
            f"attach_encode: sequence is None and `max_seq_length` of the model {longest!r}; name the lengths"
        )
    lengths, length = [], _SHORTEST
    while length < min(longest, _LONGEST):
        lengths.append(length)
        length *= _FACTOR
    return [*lengths, min(longest, _LONGEST)]
