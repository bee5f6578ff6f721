"""Private names of Dynamo for the current trace: its graph, the writes of its frame, its weak references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.guards.evidence.code import is_library_file

#: The most characters of code in a message.
_CODE_LETTERS = 60


def place() -> str:
    """Return where the current trace is in the user's program, to be added to a message; "" if there is no trace."""
    from torch._guards import TracingContext

    return "".join(f"; {text}" for text in places(TracingContext.extract_stack())[-1:])


def places(stack: Iterable[Any]) -> list[str]:
    """Return the frames of a stack that are in the user's files as texts; those of libraries if there are no others."""
    frames = [frame for frame in stack if not is_library_file(frame.filename)] or list(stack)
    return [f'File "{frame.filename}", line {frame.lineno}, in {frame.name}{_code(frame)}' for frame in frames]


def _code(frame: Any) -> str:
    """Return the code at which a frame of a stack is, unless it is long."""
    line = (frame.line or "").strip()
    return f": `{line}`" if 0 < len(line) <= _CODE_LETTERS else ""


def drop_references(graphs: list[Any]) -> None:
    """Drop the weak references to tensors of a trace's graphs, and the graphs; such references forbid `swap_tensors`.

    Call it when nothing is recorded from the trace any more.
    """
    from torch.utils.weak import TensorWeakRef

    for graph in graphs:
        context = getattr(graph, "tracing_context", None)
        if context is None:  # it was not completed
            continue
        context.tensor_to_context.clear()
        for guard in graph.guards:
            keywords = getattr(guard.create_fn, "keywords", {})
            if isinstance(keywords.get("value"), TensorWeakRef):
                keywords["value"] = None
        # For its backend, Dynamo uses another mode than for the trace.
        for mode in (context.fake_mode, getattr(graph, "_old_fake_mode", None)):
            if mode is not None:
                private_fake.forget_tensors(mode)
    graphs.clear()


def writes() -> list[tuple[Any, Any, str | None]]:
    """Return the writes of the frame of the current capture: source, object, attribute.

    Without an attribute it is the content of a container. Must be called while Dynamo compiles the graph: it drops its
    side effects right after.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    effects: Any = InstructionTranslator.current_tx().output.side_effects
    owners = {id(value): value for value in effects.keepalive}
    entries: list[tuple[Any, Any, str | None]] = []
    for key, variable in effects.id_to_variable.items():
        source = getattr(variable, "source", None)
        if source is None or key not in owners:
            continue
        attributes = effects.store_attr_mutations.get(variable, ())
        entries.extend((source, owners[key], name) for name in attributes)
        if _is_content_written(effects, variable):
            entries.append((source, owners[key], None))
    return entries


def _is_content_written(effects: Any, variable: Any) -> bool:
    """Return whether the frame writes the content of a container, which may have written attributes besides."""
    base = getattr(variable, "_base_vt", None)
    if base is not None:  # the content of an object of a user's list or dictionary class, until torch 2.14
        return bool(effects.is_modified(base))
    if not effects.store_attr_mutations.get(variable, ()):
        return bool(effects.is_modified(variable))
    # Since torch 2.15 one variable has both: of dictionaries and sets the frame may write all items with an attribute.
    has_new_items = getattr(variable, "has_new_items", bool)
    return bool(getattr(variable.mutation_type, "is_modified", False) or has_new_items())


def attribute_sources() -> dict[str, Any]:
    """Return Dynamo's source of each tensor that the graph of the current capture has as an attribute."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    sources: dict[str, Any] = {**(InstructionTranslator.current_tx().output.param_name_to_source or {})}
    return sources


def forget_unused_streams(module: torch.fx.GraphModule) -> bool:
    """Keep the current stream, which Dynamo notes wherever there is an accelerator, out of the frame.

    Returns False when the graph itself works with streams: then the frame needs it.
    """
    try:
        from torch._dynamo import graph_bytecode_inputs as noted
    except ImportError:
        return True
    for node in module.graph.nodes:
        space = getattr(getattr(node.target, "_schema", None), "name", "").partition("::")[0]
        if space == "streams" or node.target is noted.get_external_object_by_index:
            return False
    if len(noted.index_to_bytecode_constructor) == 1:
        noted.index_to_bytecode_constructor.clear()
    return not noted.index_to_bytecode_constructor


def tracing_context() -> Any:
    """Return Dynamo's context of the current capture (fake mode and shape environment)."""
    from torch._guards import TracingContext

    return TracingContext.get()


def tracked_objects() -> Iterator[tuple[Any, Any, bool]]:
    """Yield (source, object, whether the frame writes it) for all objects that the current capture tracks."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    effects: Any = InstructionTranslator.current_tx().output.side_effects
    values = {id(value): value for value in effects.keepalive}
    for key, variable in effects.id_to_variable.items():
        if key in values and getattr(variable, "source", None) is not None:
            is_written = variable in effects.store_attr_mutations or effects.is_modified(variable)
            yield variable.source, values[key], is_written
