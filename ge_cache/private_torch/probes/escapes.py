"""Dynamo hooks that detect iterators that leave the method, and generators that it leaves early.

Dynamo rebuilds an iterator from the items that were left when the trace ended: later changes of its container are lost,
and so are its type and the effects of a generator. A generator that is left early never reaches its `finally`.
"""

from __future__ import annotations

import collections.abc
import functools
import sys
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.probes.attributes import with_subclasses

#: Its `try` has only an `except IndexError`, which the end of a generator does not trigger.
_SEQUENCE = collections.abc.Sequence.__iter__.__code__


def watched_escapes(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that rebuild iterators, and of the one that ends a trace."""
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.variables.functions import LocalGeneratorObjectVariable
    from torch._dynamo.variables.iter import CountIteratorVariable, IteratorVariable, RepeatIteratorVariable
    from torch._dynamo.variables.lists import RangeIteratorVariable, TupleIteratorVariable

    graph: Any = OutputGraph
    generator: Any = LocalGeneratorObjectVariable
    init_generator, compile_graph = generator.__init__, graph.compile_subgraph
    generators: list[Any] = []

    @functools.wraps(init_generator)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        init_generator(self, *arguments, **keywords)
        generators.append(self)

    @functools.wraps(compile_graph)
    def compile_subgraph(self: Any, *arguments: Any, **keywords: Any) -> Any:
        for variable in generators:
            if _is_left_early(variable):
                name = getattr(variable.code, "co_qualname", variable.code.co_name)  # Python 3.10's name has no path
                facts.refuse(f"it leaves the generator `{name}` in a `try` or `with` whose end Python would run")
        return compile_graph(self, *arguments, **keywords)

    # What they give is known: the items of an immutable tuple, numbers, one object.
    harmless = (CountIteratorVariable, RangeIteratorVariable, RepeatIteratorVariable, TupleIteratorVariable)

    def refused(original: Any) -> Any:
        @functools.wraps(original)
        def reconstruct(self: Any, codegen: Any) -> None:
            if type(self) not in harmless:
                facts.refuse(
                    f"an iterator leaves it ({self.python_type().__name__}), which cannot be stored: give away a list"
                )
            original(self, codegen)

        return reconstruct

    yield generator, "__init__", init
    yield graph, "compile_subgraph", compile_subgraph
    for kind in (generator, *with_subclasses(IteratorVariable)):
        if "reconstruct" in vars(kind):
            yield kind, "reconstruct", refused(vars(kind)["reconstruct"])


def _is_outside(variable: Any) -> bool:
    """Return whether a generator has not begun, or has ended."""
    if hasattr(variable, "_is_generator_exhausted"):  # until torch 2.13
        return bool(variable._is_generator_exhausted() or variable._is_generator_just_started())
    state = variable.inline_tracer.frame_state
    return bool(variable._frame_state_finished() or state is type(state).FRAME_CREATED)


def _is_left_early(variable: Any) -> bool:
    """Return whether a generator has begun, has not ended, and is inside a `try` or `with`."""
    if _is_outside(variable):
        return False
    if variable.code is _SEQUENCE:
        return False
    if sys.version_info < (3, 11):  # there is no exception table, but a stack of open blocks
        return bool(variable.inline_tracer.block_stack)
    entry = getattr(variable.inline_tracer.current_instruction, "exn_tab_entry", None)
    # From Python 3.12 on, each `yield from` is inside a handler of its own, and every generator inside one that
    # converts `StopIteration` to another error.
    while entry is not None and entry.target.opname == "CLEANUP_THROW":
        entry = entry.target.exn_tab_entry
    return entry is not None and entry.target.opname != "CALL_INTRINSIC_1"
