"""Attaches one module: a cached method serves its calls, and its hooks run around the graph."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from gearcache.attaching.forward import check_module, forward_of, with_own_names
from gearcache.errors import AlreadyAttached, CaptureError
from gearcache.ge_cache.private_torch.module_hooks import (
    always_called_hooks,
    backward_hooks,
    call_with_hooks,
    has_hooks,
)
from gearcache.serving.call.bound_method import BY_POSITION, COUNTS_POSITIONS
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.parameters import Parameters
from gearcache.threads import freed_in_forks

if TYPE_CHECKING:
    from gearcache.telemetry.stats import Stats
    from gearcache.telemetry.suggest import SuggestedGears

#: Where `torch.nn.Module.__call__` looks for a function to run in place of the forward and its hooks.
SEAM = "_compiled_call_impl"
_ABSENT = object()
_ATTACHMENT = "gearcache_attachment"
#: Held while a module is attached or detached, or while its forward is exchanged.
_exchange = freed_in_forks(threading.RLock())


class _Served(Struct, frozen=True, eq=False):
    """The forward of a module, where it was found, and the cached method that serves it."""

    kind: type
    function: Any
    own: Any
    method: CachedMethod
    counts_positions: bool


class Attachment:
    """What `gearcache.attach` returns, and what calls of the module run. Safe to call from several threads.

    The module and its attachment refer to each other, so both are freed together. A copy of the module is not attached.
    """

    def __init__(self, module: torch.nn.Module, parameters: Parameters) -> None:
        check_module(module)
        #: The module whose calls are served.
        self.module = module
        self._parameters = parameters
        self._previous_seam: Any = _ABSENT
        self._served = self._serve_forward()
        self._entrance = _entrance(self)

    @property
    def method(self) -> CachedMethod:
        """The cached method that serves the present forward."""
        return self._current().method

    def _serve_forward(self) -> _Served:
        module = self.module
        kind, own_forward = type(module), vars(module).get("forward")
        forward = with_own_names(forward_of(module))
        method = CachedMethod(forward, self._parameters)
        return _Served(kind, kind.forward, own_forward, method, hasattr(forward, COUNTS_POSITIONS))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the module: its hooks, and the graph that serves its forward."""
        return self._entrance(*args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        hooks = backward_hooks(self.module)
        if hooks and torch.is_grad_enabled():
            raise CaptureError(
                self.name,
                f"it has a backward hook, `{_name(hooks[0])}`, and a cached call records nothing for a backward pass; "
                "remove the hook, or call under `torch.no_grad()`, where it does not run either",
            )
        if hooks := always_called_hooks(self.module):
            cause = f"it has a forward hook with `always_call=True`, `{_name(hooks[0])}`: register it without"
            raise CaptureError(self.name, cause)
        return call_with_hooks(self.module, self._call_forward, args, kwargs)

    def _call_forward(self, /, *args: Any, **kwargs: Any) -> Any:
        served = self._current()
        if not served.counts_positions:
            return served.method(*args, **kwargs)
        if args:
            kwargs[BY_POSITION] = len(args)
        try:
            return served.method(*args, **kwargs)
        except CaptureError as error:
            if not _fits(served.method, args, kwargs):
                served.method.function(*args, **kwargs)  # the forward raises the clearer error
                raise error
            raise

    def _current(self) -> _Served:
        """Return what serves the present forward of the module, which a program may exchange."""
        served, module = self._served, self.module
        kind = type(module)
        is_present = kind is served.kind and kind.forward is served.function
        return served if is_present and module.__dict__.get("forward") is served.own else self._follow(served)

    def _follow(self, former: _Served) -> _Served:
        """Serve the present forward of the module."""
        with _exchange:
            if self._served is not former:  # another thread has done it
                return self._served
            check_module(self.module)
            is_missing = self._served.method.right.is_missing
            self._served = self._serve_forward()
            if is_missing:  # the ranks of a job have agreed on the previous forward
                self._served.method.right.withdraw()
            return self._served

    def __repr__(self) -> str:
        return f"<{'attached' if self.is_attached else 'detached'} {repr(self._served.method)[len('<cached ') : -1]}>"

    @property
    def name(self) -> str:
        """`Class.forward`, as messages name it."""
        return self._served.method.name

    @property
    def is_attached(self) -> bool:
        """Whether calls of the module are served here."""
        return vars(self.module).get(SEAM) is self._entrance

    @property
    def stats(self) -> Stats:
        """Counters and times, see `gearcache.telemetry.stats.Stats`; they restart from zero with another forward."""
        return self._served.method.stats

    @property
    def entry_path(self) -> str | None:
        """Path of the entry's manifest; None before the first call."""
        return self._served.method.entry_path

    def explain(self) -> str:
        """Return what happened at the lookups so far: entry, hits, misses with their reasons, loaded gears."""
        return self._served.method.explain()

    def suggest_gears(self, k: int) -> SuggestedGears:
        """Return at most `k` gears that minimise the padded work for the recorded shapes (`.stats.shapes`)."""
        return self._served.method.suggest_gears(k)

    def refresh(self) -> None:
        """Check the evidence and bind the weights again at the next call, for use after the module was changed."""
        self.method.refresh()

    def set_inputs(self, /, *inputs: Any, **named: Any) -> None:
        """Declare the arguments of the forward, as `CachedMethod.set_inputs` does."""
        method = self.method
        method.set_inputs(*inputs, **named)
        self._parameters = method.parameters

    def warm(self, /, *args: Any, **kwargs: Any) -> None:
        """Compile and load every gear for a call like this one; neither the forward nor its hooks run.

        Declared arguments (`input_signature=`, `set_inputs`) need not be given: zeros stand for tensors.
        """
        self.method.warm(*args, **kwargs)

    def attach(self) -> None:
        """Serve the module's calls here; `AlreadyAttached` if another attachment serves them."""
        with _exchange:
            attributes = vars(self.module)
            present = attributes.get(SEAM, _ABSENT)
            if present is self._entrance:
                return
            if _whose(present) is self.module:
                attachment = attachment_of(present)
                raise AlreadyAttached(type(self.module).__name__, repr(attachment or present))
            self._previous_seam = present
            attributes[SEAM] = self._entrance

    def detach(self) -> None:
        """Restore what calls of the module ran before: its forward, or what `module.compile()` has made of it.

        Does nothing if the module's calls no longer come here.
        """
        with _exchange:
            if not self.is_attached:
                return
            attributes = vars(self.module)
            if self._previous_seam is _ABSENT:
                del attributes[SEAM]
            else:
                attributes[SEAM] = self._previous_seam
            self._previous_seam = _ABSENT

    def __deepcopy__(self, memo: dict[int, Any]) -> Attachment:
        import copy

        return Attachment(copy.deepcopy(self.module, memo), self._parameters)

    def __reduce__(self) -> Any:
        return Attachment, (self.module, self._parameters)


def attachment_of(seam: Any) -> Attachment | None:
    """Return the attachment at a module's seam; None if the seam holds something else."""
    attachment = getattr(seam, _ATTACHMENT, None)
    return attachment if isinstance(attachment, Attachment) else None


def _whose(seam: Any) -> Any:
    """Return the module that the object at a seam was made for; None for an object that is not gearcache's."""
    attachment = attachment_of(seam)
    return attachment.module if attachment is not None else getattr(seam, "attached_module", None)


def _entrance(attachment: Attachment) -> Callable[..., Any]:
    """Return what to put at the seam: a function, as in `module.compile()`, since `torch.jit.script` skips it."""
    module, call_forward = attachment.module, attachment._call_forward

    def call(*args: Any, **kwargs: Any) -> Any:
        if has_hooks(module):
            return attachment._call_with_hooks(args, kwargs)
        return call_forward(*args, **kwargs)

    setattr(call, _ATTACHMENT, attachment)
    return call


def _name(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))


def _fits(method: CachedMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the forward inside all decorators accepts these arguments."""
    keywords = {name: value for name, value in kwargs.items() if name != BY_POSITION}
    try:
        inspect.signature(method.function).bind(*args, **keywords)
    except TypeError:
        return False
    return True
