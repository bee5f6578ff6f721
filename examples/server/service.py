"""The model of one worker: warms it, and answers requests."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import model
import torch
import weights

import gearcache

logger = logging.getLogger("uvicorn.error")

_CHOICES = {
    "SERVER_MODEL": ("minilm", "tiny"),
    "SERVER_BACKEND": ("inductor", "eager"),
    "SERVER_COLD": ("wait", "eager"),
    "SERVER_WITH": ("gears", "eager", "compile"),
}


@dataclass(frozen=True)
class Settings:
    """The settings from the environment; the first choice is the default."""

    #: The weights.
    model: str
    #: The compiler of the gears.
    backend: str
    #: What requests get while nothing is compiled yet: they wait, or the method itself answers them.
    cold: str
    #: What serves: gearcache; or, for comparison, the method itself, or `torch.compile(dynamic=True)`.
    served_with: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Settings:
        """Read `SERVER_MODEL`, `SERVER_BACKEND`, `SERVER_COLD` and `SERVER_WITH`; `SystemExit` for another value."""
        found = []
        for name, choices in _CHOICES.items():
            value = environ.get(name, choices[0])
            if value not in choices:
                raise SystemExit(f"environment variable `{name}` is {value!r}; allowed: {', '.join(choices)}")
            found.append(value)
        return cls(*found)


class Service:
    """Encodes texts in any thread, also while another one compiles."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        begin = time.perf_counter()
        weights.import_libraries(settings.model)
        imported = time.perf_counter()
        self.encoder = model.Encoder(*weights.load(settings.model), backend=settings.backend)
        if settings.served_with == "compile":
            self._compiled = torch.compile(self.encoder.encode, dynamic=True)
        self.seconds = {"import transformers": imported - begin, "load the model": time.perf_counter() - imported}
        self.state = "cold"
        #: Set once `state` is "ready" or names the error.
        self.is_decided = threading.Event()
        self._listeners: list[Callable[[dict[str, Any]], None]] = []

    def listen(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Have `listener` called with a report when the worker is ready, or when it has failed."""
        self._listeners.append(listener)

    def warm(self) -> None:
        """Load every gear; if several workers find an empty cache, one compiles, and the others wait for it."""
        begin = time.perf_counter()
        try:
            with torch.inference_mode():
                if self.settings.served_with == "gears":
                    self.encoder.cached.warm(*self.encoder.inputs(["warm"]))
                elif self.settings.served_with == "compile":
                    for rows, words in ((1, 5), (1, 50), (4, 5), (8, 50)):
                        self._compiled(*self.encoder.inputs(["warm " * words] * rows))
            self.state = "ready"
        except Exception as error:  # whatever a compile may raise: the probe reports it, so no caller waits forever
            self.state = f"{type(error).__name__}: {error}"
            logger.error("not warm: %s", self.state)
        self.seconds["warm"] = time.perf_counter() - begin
        self.is_decided.set()
        for listener in self._listeners:
            listener(self.report())

    def encode(self, texts: Sequence[str]) -> tuple[list[list[float]], str]:
        """Return the embeddings, and what computed them: `gears`, `eager` or `compile`."""
        ids, mask = self.encoder.inputs(texts)
        served_with = self.settings.served_with if self.state == "ready" else "eager"
        with torch.inference_mode():
            if served_with == "compile":
                return self._compiled(ids, mask).tolist(), served_with
            if served_with == "gears":
                try:
                    return self.encoder.cached(ids, mask).tolist(), served_with
                except gearcache.UnknownGear:  # larger than all gears
                    served_with = "eager"
            return self.encoder.encode(ids, mask).tolist(), served_with

    def report(self) -> dict[str, Any]:
        """Return state, release, seconds and the cache's counters of this worker."""
        stats = self.encoder.cached.stats
        return {
            "pid": os.getpid(),
            "state": self.state,
            "release": model.RELEASE,
            "seconds": {name: round(seconds, 4) for name, seconds in self.seconds.items()},
            "traces": stats.traces,
            "compiles": stats.compiles,
            "loads": stats.loads,
        }
