"""`attach_generate`: attaches a transformers model in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gearcache.errors import GearSpecError, OptionError
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
    on_miss = getattr(config, "on_miss", None) or "eager"
    if on_miss not in ("eager", "raise"):
        raise OptionError(
            f"option `on_miss` is {on_miss!r}; for a model of transformers it is 'eager' or 'raise': batches and "
            "prompts are filled up to the next size anyway"
        )
    if isinstance(config, CompilerConfig):
        config = replace(config, on_miss="raise")
    for name in ("gears", "input_signature", "dynamic"):
        if name in options:
            raise TypeError(
                f"attach_generate takes no `{name}`: batch=, prompt= and cache_length= say what the graphs take"
            )
    if isinstance(cache_length, bool) or not isinstance(cache_length, int) or cache_length < 2:
        raise GearSpecError(f"attach_generate: cache_length is {cache_length!r}; it must be an int of at least 2")
    sizes = Sizes(_sizes("batch", batch, 4096), _sizes("prompt", prompt, cache_length), cache_length)
    attachment = AttachedModel(model, sizes, on_miss, Parameters(config=config, **options))
    attachment.attach()
    return attachment


def _sizes(name: str, numbers: Any, largest: int) -> tuple[int, ...]:
    sizes = list(numbers) if isinstance(numbers, (list, tuple, range)) else []
    if not sizes or any(
        isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= largest for size in sizes
    ):
        raise GearSpecError(f"attach_generate: {name} is {numbers!r}; it must be a list of ints from 1 to {largest}")
    return tuple(sorted(set(sizes)))
