"""A model whose `generate` runs from graphs: what `attach` returns."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from gearcache.errors import AlreadyAttached, UnknownGear
from gearcache.guards.gears.symbol import Symbol
from gearcache.integrations.transformers.decoder import CausalDecoder
from gearcache.integrations.transformers.generate import Generate
from gearcache.integrations.transformers.generation_stats import GenerationStats
from gearcache.integrations.transformers.model_call import Miss, ModelCall, read_call
from gearcache.integrations.transformers.pieces import pieces
from gearcache.integrations.transformers.sequence_cache import SequenceCache, Slots
from gearcache.integrations.transformers.support import check_model, layer_shapes
from gearcache.serving.method import CachedMethod
from gearcache.serving.parameters import Parameters

logger = logging.getLogger("gearcache")
#: Where `torch.nn.Module.__call__` looks for what runs in place of the forward and its hooks.
SEAM = "_compiled_call_impl"
_ABSENT = object()


class AttachedModel:
    """What `attach` returns, and what calls of the model run. Safe to call from several threads.

    Calls inside of `generate` are served from graphs; any other call of the model runs as it would without.
    """

    def __init__(
        self,
        model: Any,
        batch: Sequence[int],
        prompt: Sequence[int],
        cache_length: int,
        on_miss: str,
        parameters: Parameters,
    ) -> None:
        check_model(model)
        #: Whose `generate` is served.
        self.model = model
        self.batch, self.prompt, self.cache_length, self.on_miss = tuple(batch), tuple(prompt), cache_length, on_miss
        self._owner = uuid.uuid4().hex
        self._generate = Generate(model, self.missed, self.too_long if on_miss == "raise" else None)
        self._before: dict[str, Any] = {}
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self.eager: Counter[str] = Counter()
        decoder = CausalDecoder(model)
        widths = [gear for gear in self.prompt if gear > 1]
        #: The cached methods; prefill is None where prompts are read token by token.
        self.prefill = _cached(decoder.prefill, self.batch, widths, parameters) if widths else None
        self.decode = _cached(decoder.decode, self.batch, None, parameters)

    def __repr__(self) -> str:
        state = "attached" if self.is_attached else "detached"
        sizes = f"batch={list(self.batch)}, prompt={list(self.prompt)}, cache_length={self.cache_length}"
        return f"<{state} {self.name}, {sizes}>"

    @property
    def name(self) -> str:
        """`Class.generate`, as messages name it."""
        return f"{type(self.model).__name__}.generate"

    @property
    def methods(self) -> dict[str, CachedMethod]:
        """The cached methods by name."""
        found = {"prefill": self.prefill, "decode": self.decode}
        return {name: method for name, method in found.items() if method is not None}

    @property
    def stats(self) -> GenerationStats:
        """Counters of both methods together, and of the calls that the model itself served."""
        return GenerationStats(self.methods, self.eager)

    def explain(self) -> str:
        """Return what happened at the lookups of both methods, and why the model itself served calls."""
        lines = [method.explain() for method in self.methods.values()]
        lines += [f"ran eagerly {count} times: {reason}" for reason, count in sorted(self.eager.items())]
        return "\n".join(lines)

    def warm(self) -> None:
        """Compile and load every gear of prefill and decode, without a prompt; the model may be on `meta`."""
        slots = self._slots(self.batch[-1], self.batch[-1])
        for width in {1, self.prompt[-1]}:
            call = self._arguments(slots, *self._example(width), count=width, width=width)
            self._method(width).warm(**call)

    def _method(self, width: int) -> Any:
        return self.decode if width == 1 else self.prefill

    def _example(self, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return tokens, mask and positions of the largest batch."""
        rows, device = self.batch[-1], self.model.device
        ids = torch.zeros(rows, width, dtype=torch.long, device=device)
        return ids, self._mask(None, rows, rows), torch.arange(width, device=device).expand(rows, -1).contiguous()

    def refresh(self) -> None:
        """Look everything up again at the next call."""
        for method in self.methods.values():
            method.refresh()

    @property
    def is_attached(self) -> bool:
        """Whether the model's `generate` comes here."""
        return vars(self.model).get(SEAM) is self

    def attach(self) -> None:
        """Have `generate` come here; `AlreadyAttached` where the model's calls are served otherwise."""
        held = vars(self.model)
        present = held.get(SEAM)
        if present is self:
            return
        if present is not None:
            raise AlreadyAttached(type(self.model).__name__, repr(present))
        with self._lock:
            for name, value in ((SEAM, self), ("generate", self._generate)):
                self._before[name] = held.get(name, _ABSENT)
                held[name] = value

    def detach(self) -> None:
        """Put back what was there before. Caches that were given away stay usable by the plain model."""
        if not self.is_attached:
            return
        held = vars(self.model)
        with self._lock:
            for name, value in self._before.items():
                if value is _ABSENT:
                    held.pop(name, None)
                else:
                    held[name] = value
            self._before = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Serve one call of the model."""
        if not self._generate.is_running:
            return self.model._call_impl(*args, **kwargs)
        call = read_call(args, kwargs, self._owner)
        if not isinstance(call, Miss):
            miss = self._no_room(call)
            if miss is None:
                return self._read(call)
            call = miss
        self.missed(call)
        return self.model._call_impl(*args, **kwargs)

    def missed(self, miss: Miss) -> None:
        """Raise for what no graph serves, or count it and warn once of each reason, as `on_miss` says."""
        if self.on_miss == "raise":
            raise UnknownGear(self.name, miss.argument, miss.found, miss.allowed)
        with self._lock:
            self.eager[miss.argument] += 1
            is_new = miss.argument not in self._told
            self._told.add(miss.argument)
        if is_new:
            logger.warning("`%s` runs without graphs: %s", self.name, miss)

    def _no_room(self, call: ModelCall) -> Miss | None:
        if call.rows > self.batch[-1]:
            return Miss("input_ids", f"a batch of {call.rows}", f"batches up to {self.batch[-1]} (batch=)")
        return self.too_long(call.past + call.tokens)

    def too_long(self, tokens: int) -> Miss | None:
        """Return why so many tokens do not fit into the cache; None where they do."""
        if tokens <= self.cache_length:
            return None
        allowed = f"prompt and new tokens up to {self.cache_length} together (cache_length=)"
        return Miss("max_length", f"{tokens} tokens or more", allowed)

    def _slots(self, batch: int, rows: int) -> Slots:
        model = self.model
        return Slots(layer_shapes(model), batch, rows, self.cache_length, model.dtype, model.device)

    def _read(self, call: ModelCall) -> Any:
        """Read the tokens of a call into its cache; returns the logits of the last one and the cache."""
        slots = self._slots_of(call)
        cache = call.cache or SequenceCache(slots, self._owner)
        mask = self._mask(call.attention_mask, call.rows, slots.batch)
        ids, positions = call.input_ids, call.position_ids
        if positions is None:
            positions = torch.arange(slots.length, slots.length + call.tokens, device=ids.device)[None]
        positions = positions.expand(call.rows, -1)
        logits: Any = None
        begin = 0
        for count, width in pieces(call.tokens, slots.length, self.prompt, self.cache_length):
            part = slice(begin, begin + count)
            filled = [_filled(tensor[:, part], slots.batch, width) for tensor in (ids, positions)]
            arguments = self._arguments(slots, filled[0], mask, filled[1], count=count, width=width)
            logits = self._method(width)(**arguments)
            slots.length += count
            begin += count
        return CausalLMOutputWithPast(logits=logits[: call.rows], past_key_values=cache)

    def _slots_of(self, call: ModelCall) -> Slots:
        """Return slots that hold what the cache of a call holds."""
        batch = next(gear for gear in self.batch if gear >= call.rows)
        cache = call.cache
        if cache is None:
            return self._slots(batch, call.rows)
        if not cache.is_shared:  # transformers has cropped or reordered it, or the plain model has extended it
            cache.write_back(lambda: self._slots(batch, call.rows))
        return cache.slots

    def _arguments(
        self, slots: Slots, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, *, count: int, width: int
    ) -> dict[str, Any]:
        device = ids.device
        found = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": positions,
            "slots": torch.arange(slots.length, slots.length + width, device=device),
            "keys": slots.keys,
            "values": slots.values,
        }
        return found if width == 1 else {**found, "last": torch.full((1,), count - 1, device=device)}

    def _mask(self, given: torch.Tensor | None, rows: int, batch: int) -> torch.Tensor:
        """Return a mask of all slots; the slots of tokens to come are hidden from the others by causality."""
        mask = torch.ones(batch, self.cache_length, dtype=torch.long, device=self.model.device)
        if given is not None:
            mask[:rows, : given.shape[1]] = given
            mask[rows:, : given.shape[1]] = given[-1:]
            mask[:, given.shape[1] :] = 0
        return mask

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copy of the model is a plain one."""

    def __reduce__(self) -> Any:
        return type(None), ()


def _filled(tensor: torch.Tensor, batch: int, width: int) -> torch.Tensor:
    """Fill up with copies of the last row and of the last token of each row: nothing that a model would not meet."""
    rows, tokens = tensor.shape
    if rows < batch:
        tensor = torch.cat([tensor, tensor[-1:].expand(batch - rows, -1)])
    if tokens < width:
        tensor = torch.cat([tensor, tensor[:, -1:].expand(-1, width - tokens)], 1)
    return tensor.clone(memory_format=torch.contiguous_format)  # `contiguous` leaves a row of a longer one as it is


def _cached(method: Any, batch: Sequence[int], widths: Sequence[int] | None, parameters: Parameters) -> CachedMethod:
    """Masks, positions and keys follow the tokens: the trace ties their sizes to each other."""
    tokens: dict[int, Any] = {0: Symbol("batch", gears=list(batch))}
    if widths is not None:
        tokens[1] = Symbol("tokens", gears=list(widths))
    return CachedMethod(method, replace(parameters, gears={"input_ids": tokens}))
