"""`model.generate` of an attached model: transformers' own `generate`, inside which calls of the model are served."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from transformers.generation.configuration_utils import ALL_STATIC_CACHE_IMPLEMENTATIONS

from gearcache.integrations.transformers.model_call import UnservedCall
from gearcache.integrations.transformers.model_state import ModelState
from gearcache.integrations.transformers.support import CACHE

#: Arguments with which `generate` reads drafts of several tokens, or uses another loop.
_OTHER_LOOPS = ("assistant_model", "custom_generate", "prompt_lookup_num_tokens", "prefill_chunk_size")


class Generate:
    """The `generate` of one instance."""

    def __init__(
        self,
        model: Any,
        model_state: ModelState,
        handle_miss: Callable[[UnservedCall], None],
        too_long: Callable[[int], UnservedCall | None] | None,
    ) -> None:
        """`too_long` returns why a number of tokens does not fit; None if that is not an error."""
        self._model, self._handle_miss, self._too_long = model, handle_miss, too_long
        self._model_state = model_state
        self._threads = threading.local()

    @property
    def is_running(self) -> bool:
        """Whether this thread is in a `generate` whose calls of the model are to be served."""
        return getattr(self._threads, "is_running", False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Generate, as the model's class does."""
        state = self._threads
        previous, state.is_running, state.cause = (self.is_running, getattr(state, "cause", None)), False, None
        try:
            miss = self._miss(args, kwargs)
            if miss is not None:
                self._handle_miss(miss)
            elif self._option("cache_implementation", args, kwargs) in ALL_STATIC_CACHE_IMPLEMENTATIONS:
                kwargs["cache_implementation"] = "dynamic"  # the graphs have a static cache anyway
            state.is_running = miss is None
            return type(self._model).generate(self._model, *args, **kwargs)
        finally:
            state.is_running, state.cause = previous

    def cause_of(self, miss: UnservedCall) -> UnservedCall:
        """Return why this thread's generation left the graphs, if this miss is a call with the plain model's cache."""
        cause: UnservedCall | None = self._threads.cause
        if cause is None:
            self._threads.cause = miss
        return cause if cause is not None and miss.argument == CACHE else miss

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> UnservedCall | None:
        for name in _OTHER_LOOPS:
            if self._option(name, args, kwargs) is not None:
                return UnservedCall(name, "given", "calls without it")
        device = self._model.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return UnservedCall("autocast", f"on for {device}", "calls outside of `torch.autocast`")
        miss = self._model_state.miss()
        if miss is not None or self._too_long is None:
            return miss
        # An error at the first request is better than one after hundreds of tokens. The last token is not read.
        new = self._option("max_new_tokens", args, kwargs)
        total = self._option("max_length", args, kwargs)
        if isinstance(new, int):
            return self._too_long(self._begin(args, kwargs) + new - 1)
        return self._too_long(total - 1) if new is None and isinstance(total, int) else None

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return the least number of tokens that the cache holds before the first new one."""
        if self._model.config.is_encoder_decoder:
            candidates = (kwargs.get("decoder_input_ids"),)
        else:
            candidates = (*args[:1], kwargs.get("inputs"), kwargs.get("input_ids"))
        ids = next((value for value in candidates if value is not None), None)
        return int(ids.shape[1]) if isinstance(ids, torch.Tensor) and ids.ndim == 2 else 1

    def _option(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the value that `generate` will use for an option: from the call, the given config, or the model's."""
        if kwargs.get(name) is not None:
            return kwargs[name]
        own_config = kwargs.get("generation_config", args[1] if len(args) > 1 else None)
        for config in (own_config, self._model.generation_config):
            value = getattr(config, name, None)
            if value is not None:
                return value
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        from copy import deepcopy

        model = deepcopy(self._model, memo)
        return type(model).generate.__get__(model)

    def __reduce__(self) -> Any:
        return _unattached, (self._model,)


def _unattached(model: Any) -> Any:
    return type(model).generate.__get__(model)
