"""`attach_generate`: attaches a transformers model in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gearcache.errors import GearSpecError
from gearcache.integrations.attach_arguments import check_options, on_miss_of, sizes_of
from gearcache.integrations.transformers.attached_model import AttachedModel
from gearcache.integrations.transformers.sizes import Sizes
from gearcache.options import CompilerConfig
from gearcache.serving.call.parameters import Parameters


def attach_generate(
    model: Any,
    /,
    *,
    batch: Sequence[int] = (1, 2, 4),
    prompt: Sequence[int] = (16, 64, 256),
    cache_length: int = 512,
    config: Any = None,
    **options: Any,
) -> AttachedModel:
    """Have `model.generate(...)` run prefill and decode from graphs kept on disk.

    - `model`: a causal language model of transformers. Arguments and results of `generate` stay the same.
    - `batch`: batch sizes, counting beams and returned sequences; other sizes are padded to the next one.
    - `prompt`: prompt lengths; other lengths are padded to the next one, longer prompts are read in pieces.
    - `cache_length`: slots of the static cache: tokens of a prompt and new tokens together.
    - `config`: a `CompilerConfig`. `on_miss="eager"` (the default) has the model itself serve what no graph serves,
      with one warning for each reason; `"raise"` raises `UnknownGear`.
    - `options`: `cache_dir`, ranks and others of `cache_compile`.

    Raises `UnsupportedMethod` for a model that cannot be served, `GearSpecError` for invalid sizes, and
    `AlreadyAttached` for a model whose calls are served already. You can train the model as before.
    """
    if config is None:
        config = CompilerConfig()
    on_miss = on_miss_of(config, "transformers", "prompts")
    if isinstance(config, CompilerConfig):
        config = replace(config, on_miss="raise")
    check_options("attach_generate", options, "batch=, prompt= and cache_length=")
    if isinstance(cache_length, bool) or not isinstance(cache_length, int) or cache_length < 2:
        raise GearSpecError(f"attach_generate: cache_length is {cache_length!r}; it must be an int of at least 2")
    batches, prompts = (
        tuple(sizes_of("attach_generate", name, numbers, largest))
        for name, numbers, largest in (("batch", batch, 4096), ("prompt", prompt, cache_length))
    )
    sizes = Sizes(batches, prompts, cache_length)
    attachment = AttachedModel(model, sizes, on_miss, Parameters(config=config, **options))
    attachment.attach()
    return attachment
