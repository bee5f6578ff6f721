"""One run of `model.generate` of an attached model: transformers' own loop, whose calls of the model are served."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from msgspec import Struct
from transformers.generation.configuration_utils import ALL_STATIC_CACHE_IMPLEMENTATIONS

from gearcache.integrations.misses import Misses, UnservedCall
from gearcache.integrations.transformers.model_state import ModelState
from gearcache.integrations.transformers.support import CACHE

#: The modes of transformers whose loops read the logits of the last token, and the cache that a call returns.
_MODES = ("beam_sample", "beam_search", "greedy_search", "sample")
#: The method of a model that makes the cache of a generation, once everything else is decided.
_MAKES_CACHE = "_prepare_cache_for_generation"


class Generation(Struct):
    """One run of `generate`. Its loop passes `cache` to the model."""

    cache: Any = None
    #: Why the loop has left the graphs.
    cause: UnservedCall | None = None

    def cause_of(self, miss: UnservedCall) -> UnservedCall:
        """Return why the loop has left the graphs, if a miss is only about the cache that the model has written."""
        self.cause = self.cause or miss
        return self.cause if miss.reason == CACHE else miss


class Override(functools.partial[Any]):
    """A function in place of a method of an instance, which it gets first. A copy of the instance has the method."""

    def __reduce__(self) -> Any:
        return _itself, self.args


def _itself(method: Any) -> Any:
    return method


class Generate:
    """The `generate` of one model. Safe to call from several threads."""

    def __init__(
        self,
        model: Any,
        model_state: ModelState,
        misses: Misses,
        too_long: Callable[[int], UnservedCall | None] | None,
    ) -> None:
        """`too_long` returns why a number of tokens does not fit; None if that is not an error."""
        self._model, self._model_state, self._misses, self._too_long = model, model_state, misses, too_long
        self._threads = threading.local()

    @property
    def current(self) -> Generation | None:
        """The generation of this thread whose calls of the model are to be served; None outside of one."""
        return getattr(self._threads, "current", None)

    def overrides(self) -> dict[str, Override]:
        """Return what to put in place of the present methods of the model, which it calls."""
        return {
            "generate": Override(self._run, self._model.generate),
            _MAKES_CACHE: Override(self._make_cache, getattr(self._model, _MAKES_CACHE)),
        }

    def _run(self, generate: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        previous, self._threads.current = self.current, None
        try:
            if (miss := self._miss(generate, args, kwargs)) is None:
                self._threads.current = Generation()
            else:
                self._misses.leave(miss)
            return generate(*args, **kwargs)
        finally:
            self._threads.current = previous

    def _make_cache(self, make: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        generation = self.current
        if generation is None:
            return make(*args, **kwargs)
        given = inspect.signature(make).bind(*args, **kwargs).arguments
        config = given["generation_config"]
        if (miss := self._loop_miss(config, given["generation_mode"], given["max_cache_length"])) is not None:
            self._threads.current = None
            self._misses.leave(miss)
        elif config.cache_implementation in ALL_STATIC_CACHE_IMPLEMENTATIONS:
            config.cache_implementation = "dynamic"  # the graphs have a static cache anyway
        result = make(*args, **kwargs)
        generation.cache = given["model_kwargs"].get(CACHE)
        return result

    def _miss(self, generate: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> UnservedCall | None:
        """Return why nothing of a generation can be served, or None."""
        if _argument("custom_generate", generate, args, kwargs) is not None:
            return UnservedCall("custom_generate", "given", "calls without it")
        device = self._model.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return UnservedCall("autocast", f"on for {device}", "calls outside of `torch.autocast`")
        return self._model_state.miss()

    def _loop_miss(self, config: Any, mode: Any, tokens: int) -> UnservedCall | None:
        """Return why a loop cannot be served that has up to this number of tokens in its cache, or None."""
        if (name := getattr(mode, "value", None)) not in _MODES:
            return UnservedCall("generation_mode", repr(name), ", ".join(_MODES))
        if config.prefill_chunk_size is not None:
            return UnservedCall("prefill_chunk_size", repr(config.prefill_chunk_size), "None")
        if config.use_cache is False:
            return UnservedCall("use_cache", "False", "True")
        # An error at the first request is better than one after hundreds of tokens.
        return None if self._too_long is None else self._too_long(tokens)


def _argument(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an argument of a call, also one by position or of a `functools.partial`; None if it is not given."""
    if name in kwargs:
        return kwargs[name]
    with suppress(TypeError, ValueError):  # the function raises the clearer error
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments.get(name)
    return None
