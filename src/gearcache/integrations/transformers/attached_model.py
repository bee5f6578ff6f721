"""Defines `AttachedModel`, the result of `attach_generate`: a model whose `generate` runs from graphs."""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from gearcache.attaching.attachment import SEAM, attachment_of
from gearcache.errors import AlreadyAttached, UnknownGear
from gearcache.ge_cache.private_torch.module_hooks import call_with_hooks, has_hooks
from gearcache.integrations.transformers.causal_reader import CausalReader
from gearcache.integrations.transformers.decoder import DoesNotFit
from gearcache.integrations.transformers.generate import Generate
from gearcache.integrations.transformers.generation_stats import GenerationStats
from gearcache.integrations.transformers.model_call import UnservedCall
from gearcache.integrations.transformers.model_state import ModelState
from gearcache.integrations.transformers.seq2seq_reader import Seq2SeqReader
from gearcache.integrations.transformers.sizes import Sizes
from gearcache.integrations.transformers.support import check_model
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.parameters import Parameters
from gearcache.threads import freed_in_forks

logger = logging.getLogger("gearcache")
_ABSENT = object()


class AttachedModel:
    """What `attach_generate` returns, and what calls of the model run. Safe to call from several threads.

    Calls inside `generate` are served from graphs; any other call runs the plain model.
    """

    def __init__(self, model: Any, sizes: Sizes, on_miss: str, parameters: Parameters) -> None:
        check_model(model)
        #: The model whose `generate` is served.
        self.model = model
        #: The sizes that the graphs take.
        self.sizes = sizes
        self._on_miss = on_miss
        reader = Seq2SeqReader if model.config.is_encoder_decoder else CausalReader
        state = ModelState(model)
        self._reader: CausalReader | Seq2SeqReader = reader(model, state, sizes, parameters)
        self._generate = Generate(model, state, self._handle_miss, sizes.too_long if on_miss == "raise" else None)
        #: The objects to put in place, and the previous ones: dictionaries of modules, names and values.
        self._replacements: list[tuple[dict[str, Any], str, Any]] = [
            (vars(model), SEAM, self),
            (vars(model), "generate", self._generate),
        ]
        for module, serve in self._reader.inner.items():
            self._replacements.append((vars(module), SEAM, functools.partial(self._serve, module, serve)))
        self._replaced: list[Any] = []
        self._eager: Counter[str] = Counter()
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
        with self._lock:
            return GenerationStats(self.methods, self._eager)

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
            self._replaced = []
            for namespace, name, value in self._replacements:
                self._replaced.append(namespace.get(name, _ABSENT))
                namespace[name] = value

    def detach(self) -> None:
        """Restore the previous state. Caches that `generate` returned remain usable by the plain model."""
        with self._lock:
            for (namespace, name, value), previous in zip(self._replacements, self._replaced, strict=False):
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
        if not self._generate.is_running:
            return module._call_impl(*args, **kwargs)
        if not has_hooks(module):
            result = self._graph_result(serve, args, kwargs)
            return module._call_impl(*args, **kwargs) if result is None else result

        def forward(*args: Any, **kwargs: Any) -> Any:
            result = self._graph_result(serve, args, kwargs, is_hooked=True)
            return module.forward(*args, **kwargs) if result is None else result

        # Hooks run around the graph, so they see the tensors of `generate`, without filling.
        return call_with_hooks(module, forward, args, kwargs)

    def _graph_result(self, serve: Callable[..., Any], args: Any, kwargs: Any, **options: Any) -> Any:
        """Return the result of a graph; None for a miss, which is counted."""
        try:
            result = serve(args, kwargs, **options)
        except DoesNotFit as error:  # any slots that were written are beyond those in use
            result = UnservedCall(*error.args)
        if not isinstance(result, UnservedCall):
            return result
        self._handle_miss(result)
        return None

    def _handle_miss(self, miss: UnservedCall) -> None:
        """Raise for a call without a graph, or count it and warn once per reason, as `on_miss` says."""
        if self._on_miss == "raise":
            raise UnknownGear(self.name, miss.argument, miss.value, miss.allowed)
        miss = self._generate.cause_of(miss)
        with self._lock:
            self._eager[miss.argument] += 1
            is_new = self._eager[miss.argument] == 1
        if is_new:
            logger.warning("`%s` runs without graphs: %s", self.name, miss)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copy of the model is not attached."""

    def __reduce__(self) -> Any:
        return type(None), ()
