"""What `cache_compile` takes and returns, as type checkers and editors see it; gearcache does not import it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    overload,
    runtime_checkable,
)

from typing_extensions import Self

if TYPE_CHECKING:
    from gearcache.telemetry.stats import Stats
    from gearcache.telemetry.suggest import SuggestedGears

Parameters = ParamSpec("Parameters")
Rest = ParamSpec("Rest")
Instance = TypeVar("Instance", contravariant=True)
Result = TypeVar("Result", covariant=True)
Returned = TypeVar("Returned")


class CacheOptions(TypedDict, total=False):
    """The options of `gearcache.cache_compile`, which documents them."""

    config: Any
    dynamic: bool | None
    cache_dir: str | os.PathLike[str] | None
    global_rank: int | None
    tp_rank: int | None
    pp_rank: int | None
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None
    ge_cache: bool
    gears: Mapping[str, Any] | None
    input_signature: Any
    constants: Sequence[str]
    fullgraph: bool
    remotes: str | Sequence[str] | None


@runtime_checkable  # for type checkers: `gearcache.CachedMethod` is a class at run time
class Cached(Protocol[Parameters, Result]):
    """A method that runs through compiled graphs kept on disk, with the parameters and result of the method itself.

    In a class body, the decorator leaves such an object; on an instance it is the method of that instance.
    """

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Call the method; the first call finds, loads or compiles the graphs that serve it."""
        ...

    def set_inputs(self, *inputs: Any, **named: Any) -> None:
        """Declare the arguments: a spec or an example tensor for each, or for some by name."""
        ...

    @overload
    def warm(self) -> None:
        """Compile and load every gear for the arguments that `input_signature=` or `set_inputs` declares."""
        ...

    @overload
    def warm(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Compile and load every gear for a call like this one, without running it."""
        ...

    @property
    def stats(self) -> Stats:
        """Counters and times, see `gearcache.telemetry.stats.Stats`."""
        ...

    @property
    def entry_path(self) -> str | None:
        """Path of the entry's manifest; None before the first call."""
        ...

    @property
    def name(self) -> str:
        """`Class.method`, as messages name it."""
        ...

    def explain(self) -> str:
        """Return what happened at the lookups so far: entry, hits, misses with their reasons, loaded gears."""
        ...

    def suggest_gears(self, k: int) -> SuggestedGears:
        """Return at most `k` gears that minimise padded work for the shapes seen so far."""
        ...

    def refresh(self) -> None:
        """Check the evidence and bind the weights again at the next call, after a change of the module."""
        ...

    @overload
    def __get__(self, instance: None, owner: Any, /) -> Self: ...
    @overload
    def __get__(
        self: Cached[Concatenate[Instance, Rest], Result], instance: Instance, owner: Any, /
    ) -> Cached[Rest, Result]: ...


class Decorator(Protocol):
    """What `cache_compile` returns without a method: `@cache_compile(gears=...)` in a class body."""

    def __call__(self, func: Callable[Parameters, Returned], /) -> Cached[Parameters, Returned]:
        """Cache a method."""
        ...
