"""Defines `AttachedModel`, the result of `attach_generate`: a model whose `generate` runs from graphs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from gearcache.attaching.attachment import SEAM, attachment_of
from gearcache.errors import AlreadyAttached
from gearcache.ge_cache.private_torch.module_hooks import call_with_hooks, has_hooks
from gearcache.integrations.misses import Misses, UnservedCall
from gearcache.integrations.transformers.causal_reader import CausalReader
from gearcache.integrations.transformers.decoder import DoesNotFit
from gearcache.integrations.transformers.generate import Generate, Generation
from gearcache.integrations.transformers.generation_stats import GenerationStats
from gearcache.integrations.transformers.model_state import ModelState
from gearcache.integrations.transformers.seq2seq_reader import Seq2SeqReader
from gearcache.integrations.transformers.sizes import Sizes
from gearcache.integrations.transformers.support import CACHE, check_model
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.parameters import Parameters
from gearcache.threads import freed_in_forks

_ABSENT = object()


class AttachedModel:
    """What `attach_generate` returns, and what calls of the model run. Safe to call from several threads.

    The calls that the loop of `generate` makes are served from graphs; any other call runs the plain model.
    """

    def __init__(self, model: Any, sizes: Sizes, on_miss: str, parameters: Parameters) -> None:
        check_model(model)
        #: The model whose `generate` is served.
        self.model = model
        #: The sizes that the graphs take.
        self.sizes = sizes
        reader = Seq2SeqReader if model.config.is_encoder_decoder else CausalReader
        state = ModelState(model)
        self._reader: CausalReader | Seq2SeqReader = reader(model, state, sizes, parameters)
        self._misses = Misses(self.name, on_miss, self._reader.methods["decode"].count_eager)
        self._generate = Generate(model, state, self._misses, sizes.too_long if on_miss == "raise" else None)
        #: What was put in place: dictionaries of modules, names, values, and the previous values.
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._lock = freed_in_forks(threading.RLock())

    def __repr__(self) -> str:
        return f"<{'attached' if self.is_attached else 'detached'} {self.name}, {self.sizes}>"

    @property
    def name(self) -> str:
        """`Class.generate`, as messages name it."""
        return f"{type(self.model).__name__}.generate"

    @property
    def methods(self) -> dict[str, CachedMethod]:
        """The cached methods by name: `prefill` (absent if prompts are read token by token) and `decode`.

        For an encoder-decoder: `encode`, `begin` (the first token) and `decode`.
        """
        return dict(self._reader.methods)

    @property
    def stats(self) -> GenerationStats:
        """Combined counters of all methods, and of the calls that the model itself served."""
        return GenerationStats(self.methods)

    def explain(self) -> str:
        """Return what happened at the lookups of all methods, and why the model itself served calls."""
        lines = [method.explain() for method in self.methods.values()]
        lines += [f"ran eagerly {calls} times: {name}" for name, calls in sorted(self.stats.eager_reasons.items())]
        return "\n".join(lines)

    def warm(self) -> None:
        """Compile and load every gear of every method, without a prompt; the model may be on `meta`."""
        self._reader.warm()

    def refresh(self) -> None:
        """Look everything up again at the next call."""
        for method in self.methods.values():
            method.refresh()

    @property
    def is_attached(self) -> bool:
        """Whether the model's calls are served here."""
        return vars(self.model).get(SEAM) is self

    @property
    def attached_module(self) -> Any:
        """The module whose calls are served here: `gearcache.attach` does not replace this attachment."""
        return self.model

    def attach(self) -> None:
        """Serve `generate` here; `AlreadyAttached` if the model's calls are already served from graphs."""
        with self._lock:
            served_by = vars(self.model).get(SEAM)
            if served_by is self:
                return
            other = served_by if isinstance(served_by, AttachedModel) else attachment_of(served_by)
            if other is not None:
                raise AlreadyAttached(type(self.model).__name__, repr(other))
            self._replaced = [(*place, place[0].get(place[1], _ABSENT)) for place in self._replacements()]
            for namespace, name, value, _ in self._replaced:
                namespace[name] = value

    def _replacements(self) -> Iterator[tuple[dict[str, Any], str, Any]]:
        """Yield what serves calls, made anew each time: dictionaries of modules, names and values."""
        yield vars(self.model), SEAM, self
        for name, override in self._generate.overrides().items():
            yield vars(self.model), name, override
        for module, serve in self._reader.inner.items():
            yield vars(module), SEAM, functools.partial(self._serve, module, serve)

    def detach(self) -> None:
        """Restore the previous state. Caches that `generate` returned remain usable by the plain model."""
        with self._lock:
            for namespace, name, value, previous in self._replaced:
                if namespace.get(name) is not value:
                    continue
                if previous is _ABSENT:
                    del namespace[name]
                else:
                    namespace[name] = previous
            self._replaced = []

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Serve one call of the model."""
        return self._serve(self.model, self._reader.serve, *args, **kwargs)

    def _serve(self, module: Any, serve: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Serve one call of a module, or let the module itself do so."""
        generation = self._generate.current
        # Other calls, of a logits processor for example, are those of the user's code. An encoder is called before
        # there is a cache.
        if generation is None or kwargs.get(CACHE) is not generation.cache:
            return module._call_impl(*args, **kwargs)
        if not has_hooks(module):
            result = self._graph_result(generation, serve, args, kwargs)
            return module._call_impl(*args, **kwargs) if result is None else result

        def forward(*args: Any, **kwargs: Any) -> Any:
            result = self._graph_result(generation, serve, args, kwargs, is_hooked=True)
            return module.forward(*args, **kwargs) if result is None else result

        # Hooks run around the graph, so they see the tensors of `generate`, without filling.
        return call_with_hooks(module, forward, args, kwargs)

    def _graph_result(
        self, generation: Generation, serve: Callable[..., Any], args: Any, kwargs: Any, **options: Any
    ) -> Any:
        """Return the result of a graph; None for a miss, which is counted."""
        try:
            result = self._misses.attempt(serve, args, kwargs, **options)
        except DoesNotFit as error:  # any slots that were written are beyond those in use
            result = UnservedCall(*error.args)
        if not isinstance(result, UnservedCall):
            generation.cache = result.get(CACHE)
            return result
        self._misses.leave(generation.cause_of(result))
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copy of the model is not attached."""

    def __reduce__(self) -> Any:
        return type(None), ()
