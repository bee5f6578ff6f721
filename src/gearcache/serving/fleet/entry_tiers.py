"""The entry of one binding in the tiers beyond this host: what a build fetches from them, and what it sends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gearcache.errors import CacheError, OptionError
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.gears.parse import GearSpec
from gearcache.serving.call.call import Call
from gearcache.serving.find.evidence import EvidenceCheck
from gearcache.serving.find.fit import takes
from gearcache.serving.find.variants import Variants
from gearcache.serving.miss.outdated import is_edited, is_left_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gearcache.serving.fleet.remote_entry import RemoteEntry
    from gearcache.serving.fleet.tier_fetch import Wanted


class EntryTiers:
    """The tiers of one binding; none is opened before it is needed."""

    def __init__(self, variants: Variants) -> None:
        self._variants = variants
        self._method, self._entry, self._history = variants.method, variants.entry, variants.history
        #: Whether this process ends with the build, so that its parent process sends what it stored.
        self.leaves_sending = False
        self._remote_entry: RemoteEntry | None = None
        self._has_no_remote = False

    def wanted(
        self,
        call: Call,
        spec: GearSpec,
        present: list[StoredVariant],
        is_served: Callable[[], bool],
        *,
        any_sizes: bool = False,
    ) -> Wanted:
        """Return what a call needs from tiers, beside the present variants; `any_sizes`: also at other sizes.

        `is_served` loads what is stored by now, and says whether that serves the call.
        """
        from gearcache.serving.fleet.tier_fetch import Wanted

        evidence = EvidenceCheck(call.scope)

        def is_served_by(fetched: list[StoredVariant]) -> bool:
            self._variants.known.forget(fetched)  # equal ones that were of no use are tried again
            return is_served()

        return Wanted(
            is_usable=lambda variant: self._variants.unsuited(variant, call, evidence) is None,
            is_likely=lambda variant: takes(variant, call, any_sizes=any_sizes),
            is_served_by=is_served_by,
            is_outdated=lambda variant: is_edited(variant, call) or is_left_over(variant, call, evidence),
            work=work_text(call, spec, self._method.parameters.dynamic),
            present=self._variants.sound(present),
        )

    def shared(self) -> str:
        """Return the names of the tiers that receive what is compiled here; empty if there are none."""
        remote = self.remote()
        return " ".join(remote.reached) if remote is not None and not self._entry.is_in_memory else ""

    def remote(self) -> RemoteEntry | None:
        """Return the entry in the tiers beyond this host; None without tiers."""
        settings = self._method.settings
        if self._remote_entry is None and settings.remotes and not self._has_no_remote:
            from gearcache.serving.fleet.remote_entry import RemoteEntry

            try:
                self._remote_entry = RemoteEntry(
                    self._entry,
                    self._history,
                    # A failing tier must not stop a prewarm, which is strict, from compiling: its report names the
                    # failure.
                    strict=settings.strict and self._method.serves,
                    lock_timeout=settings.lock_timeout,
                )
            except (CacheError, OptionError) as error:  # keys or URLs cannot be used; the call must not fail for it
                self._has_no_remote = True
                is_option = isinstance(error, OptionError)
                self._history.fault(OptionError(f"no tier is asked: {error}") if is_option else error)
        return self._remote_entry

    @contextlib.contextmanager
    def giving_up(self) -> Iterator[None]:
        """Let other hosts compile if this one could not."""
        try:
            yield
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Let other hosts compile what this one does not."""
        if self._remote_entry is not None:
            self._remote_entry.give_up()

    def offer(self) -> None:
        """Send what was compiled to the tiers; a prewarm does so at its end, and a process of its own at once."""
        remote = self.remote()
        if remote is None or self._entry.is_in_memory:
            return
        if self.leaves_sending:
            remote.leave()
        elif not self._method.serves or self._method.right.is_granted:  # other ranks wait for it
            remote.send()
        else:
            remote.offer()

    def send(self) -> list[str]:
        """Send the stored entry to the tiers, now; returns the problems."""
        remote = self.remote()
        return remote.send() if remote is not None and not self._entry.is_in_memory else []


_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def work_text(call: Call, spec: GearSpec, dynamic: bool | None) -> str:
    """Return gears, tensors without the sizes that do not matter, and plain values of a call.

    Hosts compare it to share one compile. It need not identify graphs exactly: at worst, a host waits for a graph that
    does not serve it, or compiles the same as another one.
    """
    tensors = [
        (path, str(tensor.dtype), tensor.device.type, [_size(spec, path, dim, size, dynamic) for dim, size in sizes])
        for path, tensor in sorted(call.tensors.items())
        for sizes in [list(enumerate(tensor.shape))]
    ]
    return repr((sorted(spec.gears), tensors, {name: _plain(value) for name, value in call.given.items()}))


def _size(spec: GearSpec, path: str, dim: int, size: int, dynamic: bool | None) -> int | str:
    is_geared = any(axis.dim == dim and axis.matches(path) for axis in (*spec.axes, *spec.ranges))
    return "any" if is_geared or (dynamic and not spec.axes and size > 1) else size


def _plain(value: Any) -> str:
    return repr(value) if type(value) in _SCALARS else type(value).__qualname__
