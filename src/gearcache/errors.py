"""Exceptions of gearcache.

    GearcacheError
    ├── CacheError                    a fault of the cache: never breaks the model (unless `strict`)
    │   ├── UnkeyableValue            a value has no stable encoding for the key
    │   ├── CorruptEntry              bytes on disk do not match their digest or format
    │   ├── LockTimeout               another process holds the key for too long (also `TimeoutError`)
    │   ├── PublishError              an entry could not be written
    │   ├── UnsafePath                a file or folder of the cache may not be trusted
    │   │   └── UnsignedEntry         an entry lacks the signature that was asked for
    │   ├── BundleError               a bundle cannot be exported or imported
    │   └── RemoteError               a tier cannot be reached, is too slow, refuses, or gives wrong bytes
    │       ├── Denied                this host has no right to the request
    │       ├── Late                  the time for the request is over
    │       └── TooLarge              an object is over a limit
    ├── CaptureError                  a method cannot be cached; the text names the method and the cause
    │   ├── MethodRaises              its trace ends in an exception that it does not raise when it runs
    │   ├── NoOperation               it runs no tensor operation; only preparing such a call raises it
    │   ├── NotExportable             a model cannot be exported (`dynamo_export`)
    │   └── UncacheableGuard          Dynamo guards on something gearcache cannot check
    ├── CompileError                  a backend failed; names the gear
    │   └── ModuleChanged             another thread changed what a trace read; only preparing a call raises it
    ├── GraphError                    a compiled graph failed while it ran (also `RuntimeError`)
    ├── PaddedResultError             a padded call gave NaN, maybe through its filling (also `RuntimeError`)
    ├── UnsupportedMethod             `cache_compile` cannot take this (also `TypeError`)
    ├── AlreadyAttached               another `attach` already serves the module (also `ValueError`)
    ├── BackendUnavailable            a backend cannot run here (also `ImportError`)
    ├── GearSpecError                 a gear spec is wrong (also `ValueError`)
    ├── InputError                    a call does not fit the compiled graphs (also `ValueError`)
    │   ├── UnknownGear               a shape outside all gears
    │   └── GradientRequired          an input requires grad: gearcache is for inference
    ├── RecompileRefused              the stance `fail_on_recompile` forbids a compile (also `RuntimeError`)
    ├── RanksDisagree                 the ranks of a job cannot serve the same graphs (also `RuntimeError`)
    ├── CompileNotAgreed              a call would compile in a job whose ranks have agreed (also `RuntimeError`)
    ├── TooManyVariants               an entry already holds `max_variants` variants
    ├── MissingTorch                  torch is not installed (also `ImportError`)
    ├── UnsupportedTorch              torch is older than all tested releases (also `ImportError`)
    │   └── MissingTorchNames         an untested torch lacks names that gearcache uses (only `strict` raises it)
    │       └── UncalledProbes        it has the names, but does not call the probes that watch a trace
    ├── PrewarmFailed                 some nodes of a cluster lack graphs that they should have prewarmed
    └── PreparationError              gearcache itself failed; the method runs uncached (unless `strict`)

Every class carries its data as attributes and survives pickling across processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

#: Where torch has builds without CUDA.
_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: A server's text may be long; a warning must not be.
_MOST_PROBLEM = 500


class GearcacheError(Exception):
    """Base of all errors that gearcache raises on purpose."""

    def __init__(self, *data: object) -> None:
        super().__init__(*data)
        self.data = data

    def __reduce__(self) -> tuple[type[GearcacheError], tuple[object, ...]]:
        return type(self), self.data


class _Sentence(GearcacheError):
    """An error whose data is its text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class _OfGear(GearcacheError):
    """A failure of one gear of a method."""

    def __init__(self, method: str, gear: str, cause: str) -> None:
        super().__init__(method, gear, cause)
        self.method, self.gear, self.cause = method, gear, cause


class CacheError(GearcacheError):
    """A fault of the cache itself; it becomes one warning and a compile without the cache."""


class _OfFile(CacheError):
    """A fault of one file."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(str(path), reason)
        self.path, self.reason = Path(path), reason


class UnkeyableValue(CacheError, TypeError):
    """A value outside the allow-list of the key encoder."""

    def __init__(self, component: str, type_name: str, detail: str = "") -> None:
        super().__init__(component, type_name, detail)
        self.component, self.type_name, self.detail = component, type_name, detail

    def __str__(self) -> str:
        hint = f" ({self.detail})" if self.detail else ""
        return (
            f"key component `{self.component}` holds a value of type `{self.type_name}`, which has no "
            f"stable encoding{hint}; allowed are None, bool, int, float, str, bytes, tuple, list, dict, "
            "enum members and frozen msgspec structs"
        )


class CorruptEntry(_OfFile):
    """A manifest or blob that does not match its digest or format."""

    def __str__(self) -> str:
        return f"`{self.path}` is corrupt: {self.reason}"


class LockTimeout(CacheError, TimeoutError):
    """Timed out waiting for the lock of a key."""

    def __init__(self, path: Path | str, seconds: float) -> None:
        super().__init__(str(path), seconds)
        self.path, self.seconds = Path(path), seconds

    def __str__(self) -> str:
        return (
            f"waited {self.seconds:g} s for `{self.path}`: another process is compiling this entry; "
            "raise `GEARCACHE_LOCK_TIMEOUT` (seconds), or the `timeout` of an agreement, if its compile takes longer"
        )


class PublishError(_OfFile):
    """An entry could not be written."""

    def __str__(self) -> str:
        return f"could not write `{self.path}`: {self.reason}"


class UnsafePath(CacheError):
    """A file or folder of the cache that other users may have changed."""

    def __init__(self, path: Path | str, reason: str, remedy: str) -> None:
        super().__init__(str(path), reason, remedy)
        self.path, self.reason, self.remedy = Path(path), reason, remedy

    def __str__(self) -> str:
        # Unchanged: for an entry of a tier it is a URL.
        return f"`{self.data[0]}` is not trusted: {self.reason}; {self.remedy}"


class UnsignedEntry(UnsafePath):
    """An entry that is not signed, or with another key."""


class BundleError(_OfFile):
    """A bundle that cannot be written, read or trusted; the rest of the cache is unchanged."""

    def __str__(self) -> str:
        return f"bundle `{self.path}`: {self.reason}"


class RemoteError(CacheError):
    """A tier cannot be reached, is too slow, refuses, or gives a wrong answer; never breaks a call."""

    def __init__(self, label: str, problem: str) -> None:
        # One printable line, whatever the server sent.
        shown = "".join(sign if sign.isprintable() else " " for sign in problem[:_MOST_PROBLEM])
        shown = " ".join(shown.split()) + "…" * (len(problem) > _MOST_PROBLEM)
        super().__init__(label, shown)
        self.label = label
        self.problem = shown

    def __str__(self) -> str:
        return f"tier {self.label}: {self.problem}"


class Denied(RemoteError):
    """A tier answers that this host has no right to the request: to try it again is useless."""


class Late(RemoteError):
    """The time for a request to a tier is over; the tier may only be slow."""


class TooLarge(RemoteError):
    """An object is over a limit; its tier has no fault."""


class CaptureError(GearcacheError):
    """A method that cannot be turned into one static graph."""

    #: Whether ints were symbolic in the trace: with constants in their place it may succeed.
    is_beside_numbers = False

    def __init__(self, method: str, cause: str) -> None:
        super().__init__(method, cause)
        self.method, self.cause = method, cause

    def __str__(self) -> str:
        return f"`{self.method}` cannot be cached: {self.cause}"


class NoOperation(CaptureError):
    """A call that runs no tensor operation. Its method serves it; only preparing such a call raises this."""

    def __init__(self, method: str, cause: str = "it runs no tensor operation that could be compiled") -> None:
        super().__init__(method, cause)


class MethodRaises(CaptureError):
    """The trace of a method ends in an exception. The method runs to raise it; if it returns, gearcache raises this."""

    #: Whether the trace reached a `raise`; otherwise it reached something that may raise only during a trace.
    is_by_statement = False
    #: Whether the method has run without raising, with its side effects.
    has_run = False
    #: The remembered error for similar calls; None without one.
    remembered: MethodRaises | None = None
    #: Whether the call was similar to an earlier one, and therefore not traced.
    is_repeated = False
    #: Whether the method has returned at a later call: the next similar call is traced.
    is_outdated = False

    def note_return(self) -> None:
        """Record that the method ran and returned: Dynamo cannot trace it, or it has changed since its trace."""
        if not self.is_repeated:
            self.has_run = True
        if self.remembered is not None:
            self.remembered.has_run, self.remembered.is_outdated = self.has_run, self.is_repeated

    def __str__(self) -> str:
        ran = "; to see whether it raises, it was run once, and what it changes is changed" if self.has_run else ""
        return super().__str__() + ran


class NotExportable(CaptureError):
    """A model that cannot be turned into one static graph for an export."""

    def __str__(self) -> str:
        return f"`{self.method}` cannot be exported: {self.cause}"


class UncacheableGuard(CaptureError):
    """The trace depends on something that cannot be checked without Dynamo."""

    #: Whether that is something else than it was a moment before.
    has_changed = False

    def __init__(self, method: str, guard: str, source: str, detail: str = "") -> None:
        GearcacheError.__init__(self, method, guard, source, detail)
        self.method, self.guard, self.source, self.detail = method, guard, source, detail
        self.cause = f"its trace depends on `{source}` through a {guard} guard"

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"`{self.method}` cannot be cached: {self.cause}, which gearcache cannot check{detail}"


class GraphError(_OfGear, RuntimeError):
    """A compiled graph that failed while it ran; the method itself mostly fails for such a call too."""

    def __str__(self) -> str:
        return f"`{self.method}`, gear {_short_gear(self.gear)}: the compiled graph failed: {self.cause}"


class OptionError(_Sentence, ValueError):
    """An option or environment variable with an invalid value; the text names the valid ones."""


class UnsupportedMethod(_Sentence, TypeError):
    """Something that `cache_compile` cannot take; the text says what it takes instead."""


class CompileError(_OfGear):
    """A backend failed on one gear; the other gears are kept."""

    def __str__(self) -> str:
        return f"`{self.method}`, gear {_short_gear(self.gear)}: the backend failed: {self.cause}"


class ModuleChanged(CompileError):
    """What a trace reads changed while it ran, or before its graph was loaded: another thread writes the module."""

    def __str__(self) -> str:
        return (
            f"`{self.method}`, gear {_short_gear(self.gear)}: the module changed while its graph was made, so this "
            f"graph cannot serve it: {self.cause}"
        )


class AlreadyAttached(GearcacheError, ValueError):
    """A module whose calls another attachment serves."""

    def __init__(self, module: str, attachment: str) -> None:
        super().__init__(module, attachment)
        self.module, self.attachment = module, attachment

    def __str__(self) -> str:
        return (
            f"attach: this `{self.module}` is attached already ({self.attachment}); call `.detach()` of what that "
            "`attach` returned first"
        )


class BackendUnavailable(GearcacheError, ImportError):
    """A backend that cannot run on this host."""

    def __init__(self, backend: str, missing: str) -> None:
        GearcacheError.__init__(self, backend, missing)
        self.backend, self.missing = backend, missing

    def __str__(self) -> str:
        return f"backend `{self.backend}` cannot run here: {self.missing}"


class PaddedResultError(GearcacheError, RuntimeError):
    """A result of a padded call holds NaN, and masked filling could be the cause; nothing was written."""

    def __init__(self, gear: str, sizes: str) -> None:
        super().__init__(gear, sizes)
        self.gear, self.sizes = gear, sizes

    def __str__(self) -> str:
        return (
            f"padded from {_short_gear(self.sizes)} to gear {_short_gear(self.gear)}, a result holds NaN: from the "
            "arguments or weights, or from masked filling that overflowed; call the method itself, or with the "
            "sizes of a gear"
        )


class GearSpecError(_Sentence, ValueError):
    """An invalid gear spec; nothing was changed."""


class InputError(GearcacheError, ValueError):
    """A call whose arguments do not fit the compiled graphs."""

    def __init__(self, method: str, argument: str, value: str, allowed: str) -> None:
        super().__init__(method, argument, value, allowed)
        self.method, self.argument, self.value, self.allowed = method, argument, value, allowed

    def __str__(self) -> str:
        return f"`{self.method}`: argument `{self.argument}` is {self.value}; allowed: {self.allowed}"


class UnknownGear(InputError):
    """A shape outside all gears."""

    def __str__(self) -> str:
        return f"{super().__str__()}; name the size in `gears=`, or choose another `on_miss` for such calls"


class GradientRequired(InputError):
    """An input that requires grad, with grad mode on."""


class TooManyVariants(GearcacheError):
    """An entry that would outgrow `max_variants`."""

    def __init__(self, method: str, limit: int, reason: str) -> None:
        super().__init__(method, limit, reason)
        self.method, self.limit, self.reason = method, limit, reason

    def __str__(self) -> str:
        return (
            f"`{self.method}` already has {self.limit} variants (max_variants={self.limit}); this call "
            f"needs another one because {self.reason}. It runs without a graph, as will others like it. What to do: "
            "let sizes, ints and floats vary (no `dynamic=False`), pass as tensors those that stay constants, name "
            "sizes in `gears=`, or raise `CompilerConfig(max_variants=)`"
        )


class RecompileRefused(GearcacheError, RuntimeError):
    """A call that no stored graph can serve, under `torch.compiler.set_stance("fail_on_recompile")`."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(method, reason)
        self.method, self.reason = method, reason

    def __str__(self) -> str:
        return f"`{self.method}` would have to be compiled, and the stance is `fail_on_recompile`: {self.reason}"


class RanksDisagree(GearcacheError, RuntimeError):
    """The ranks of a job could not agree on what they serve; all of them raise this, with the same rank and reason."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank, self.reason = rank, reason

    def __str__(self) -> str:
        return f"the ranks of this job do not agree on what they serve: rank {self.rank}: {self.reason}"


class CompileNotAgreed(GearcacheError, RuntimeError):
    """A call that no stored graph serves, after `gearcache.agree`: a rank must not compile while the others wait."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(method, reason)
        self.method, self.reason = method, reason

    def __str__(self) -> str:
        return (
            f"`{self.method}` would have to be compiled, and the ranks of this job have agreed that none of them "
            f"compiles alone: {self.reason}; declare such calls and call gearcache.agree again on all ranks, or use "
            f"on_miss='eager'"
        )


class MissingTorch(GearcacheError, ImportError):
    """torch is not installed. gearcache does not require it from pip, which would replace an installed one."""

    def __init__(self, tested: str, newest: str) -> None:
        super().__init__(tested, newest)
        self.tested, self.newest = tested, newest

    def __str__(self) -> str:
        return (
            f"gearcache works with torch {self.tested}, and none is installed: `pip install 'gearcache[torch]'`; "
            f"without CUDA first `pip install 'torch=={self.newest}.*' --index-url {_CPU_INDEX}`"
        )


class UnsupportedTorch(GearcacheError, ImportError):
    """This torch is older than all releases that gearcache was tested with."""

    def __init__(self, release: str, tested: str, newest: str) -> None:
        super().__init__(release, tested, newest)
        self.release, self.tested, self.newest = release, tested, newest

    def __str__(self) -> str:
        requirement = f"gearcache works with torch {self.tested} or newer"
        return f"{requirement}, this is {self.release}: install `torch=={self.newest}.*`"


class MissingTorchNames(UnsupportedTorch):
    """An untested torch lacks names that gearcache uses; the methods themselves answer."""

    def __init__(self, release: str, tested: str, newest: str, names: tuple[str, ...]) -> None:
        GearcacheError.__init__(self, release, tested, newest, names)
        self.release, self.tested, self.newest, self.names = release, tested, newest, names

    def __str__(self) -> str:
        lacking = ", ".join(f"`{name}`" for name in self.names)
        return f"torch {self.release} lacks {lacking}, which gearcache uses: install `torch=={self.newest}.*`"


class UncalledProbes(MissingTorchNames):
    """An untested torch has functions that gearcache watches, but does not call them.

    `cause`: why the trace that tests this failed, if it did.
    """

    _SHOWN = 3

    def __init__(self, release: str, tested: str, newest: str, names: tuple[str, ...], cause: str = "") -> None:
        super().__init__(release, tested, newest, names)
        self.data = (*self.data, cause)
        self.cause = cause

    def __str__(self) -> str:
        shown = ", ".join(f"`{name}`" for name in self.names[: self._SHOWN])
        more = f" and {len(self.names) - self._SHOWN} others" if self.names[self._SHOWN :] else ""
        because = f" (the trace that shows it fails: {self.cause})" if self.cause else ""
        return (
            f"torch {self.release} does not call {shown}{more}, by which gearcache sees what a trace depends on"
            f"{because}: install `torch=={self.newest}.*`"
        )


class PrewarmFailed(GearcacheError):
    """Some nodes of a cluster lack graphs; `failures` has the reasons, `nodes` the reports of all nodes."""

    def __init__(self, failures: Mapping[str, str], nodes: Sequence[object] = ()) -> None:
        super().__init__(dict(failures), list(nodes))
        self.failures, self.nodes = dict(failures), list(nodes)

    def __str__(self) -> str:
        return "not prewarmed: " + "; ".join(f"node {node}: {problem}" for node, problem in self.failures.items())


class PreparationError(GearcacheError):
    """An unexpected exception between a call and its graph; it is the cause (`__cause__`) of this one.

    `remedy`: what is wrong with the host, and what to do; empty if unknown.
    """

    def __init__(self, method: str, cause: str, place: str, remedy: str = "") -> None:
        super().__init__(method, cause, place, remedy)
        self.method, self.cause, self.place, self.remedy = method, cause, place, remedy

    def __str__(self) -> str:
        remedy = self.remedy or "That is not foreseen: please report it"
        return (
            f"`{self.method}`: this call cannot be prepared: {self.cause} (in {self.place}). {remedy}; "
            f"without `strict` the method runs uncached"
        )


def _short_gear(gear: str) -> str:
    """Return the short name of a gear, whose full name may have a term for each layer of a model."""
    from gearcache.guards.gears.short_names import sizes_name

    return sizes_name(gear)
