"""Private names of torch for shape marks and the stance, on the warm path and in a capture.

This module does not import Dynamo; `check_marked_dims` is called while Dynamo runs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from gearcache.guards.gears.parse import geared_dims
from gearcache.import_hooks import ImportHook

_STANCE_MODULES = ("torch._dynamo.eval_frame", "torch._dynamo.decorators")


def stance() -> tuple[str, Any]:
    """Return stance and forced backend of `torch.compiler.set_stance`, without importing Dynamo."""
    module: Any = sys.modules.get(_STANCE_MODULES[0])
    present = getattr(module, "_stance", None)
    return (present.stance, present.backend) if present is not None else ("default", None)


def watch_stance(changed: Callable[[], None]) -> None:
    """Call `changed` after each change of the stance, also when Dynamo is imported only later."""

    def execute(module: Any, original: Callable[[Any], None]) -> None:
        original(module)
        wrap(module)  # before any code can import the function by name

    def wrap(module: Any) -> None:
        if hook in sys.meta_path:
            sys.meta_path.remove(hook)
            _wrap_set_stance(module, changed)

    hook = ImportHook(_STANCE_MODULES[0].__eq__, execute)
    sys.meta_path.insert(0, hook)
    if _STANCE_MODULES[0] in sys.modules:  # by now: another thread may have begun to import it
        wrap(importlib.import_module(_STANCE_MODULES[0]))


def _wrap_set_stance(module: Any, changed: Callable[[], None]) -> None:
    original = module._set_stance

    @functools.wraps(original)
    def set_stance(present: Any) -> Any:
        prior = original(present)
        try:
            changed()
        except BaseException:  # it is refused: the caller keeps no stance to put back
            original(prior)
            raise
        return prior

    for name in _STANCE_MODULES:
        if name in sys.modules and getattr(sys.modules[name], "_set_stance", None) is original:
            sys.modules[name]._set_stance = set_stance  # type: ignore[attr-defined]


def shape_marks(tensors: Mapping[str, torch.Tensor]) -> list[list[Any]]:
    """Return the marks that `mark_dynamic` and similar functions left on tensors, by path, as plain data.

    The order is defined. Dims for which `set_dim_gears` left gears are left out: torchair's function marks those
    besides.
    """
    entries = []
    for path, tensor in tensors.items():
        marks = _beside_gears(tensor)
        if marks:
            entries.append([path, [[name, _plain_mark(marks[name])] for name in _MARKS if name in marks]])
    return sorted(entries)


_MARKS = (
    "_dynamo_dynamic_indices",
    "_dynamo_dynamic_range",
    "_dynamo_weak_dynamic_indices",
    "_dynamo_unbacked_indices",
    "_dynamo_strict_unbacked_indices",
    "_dynamo_unbacked_bounds",
    "_dynamo_shape_ids",
    "_dynamo_static_indices",
)

#: Marks of a dim that its gears make redundant.
_SUBSUMED = ("_dynamo_dynamic_indices", "_dynamo_dynamic_range", "_dynamo_static_indices")


def _beside_gears(tensor: torch.Tensor) -> dict[str, Any]:
    """Return the marks of a tensor by name, without those of its dims with gears."""
    marks = {name: vars(tensor)[name] for name in _MARKS if name in vars(tensor)}
    geared = geared_dims(tensor)
    for name in _SUBSUMED if geared else ():
        if name in marks:
            remaining = {item for item in marks.pop(name) if getattr(item, "dim", item) not in geared}
            marks |= {name: remaining} if remaining else {}
    return marks


def _plain_mark(mark: Any) -> list[Any]:
    if isinstance(mark, dict):
        return sorted([dim, *(value if isinstance(value, tuple) else (value,))] for dim, value in mark.items())
    items = [[item.dim, item.min, item.max] if hasattr(item, "dim") else item for item in mark]
    return sorted(items, key=repr)


def shape_sources() -> dict[str, str]:
    """Return the settings that name dynamic dims (`TORCH_COMPILE_DYNAMIC_SOURCES` etc.), where they are set."""
    config: Any = torch.compiler.config
    names = ("dynamic_sources", "unbacked_sources", "dynamic_values")
    return {name: value for name in names if (value := getattr(config, name, ""))}


@contextlib.contextmanager
def unmarked(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Remove the shape marks from tensors, and restore them."""
    with _marked_as((tensor, {}) for tensor in tensors):
        yield


@contextlib.contextmanager
def unmarked_gears(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Remove the marks of dims with gears from tensors, and restore them.

    torchair's `set_dim_gears` marks them for `torch.compile`. In our traces such a mark would be an error where a gear
    has a dim of size 1.
    """
    with _marked_as((tensor, _beside_gears(tensor)) for tensor in tensors if geared_dims(tensor)):
        yield


@contextlib.contextmanager
def _marked_as(new_marks: Iterable[tuple[torch.Tensor, dict[str, Any]]]) -> Iterator[None]:
    """Replace all marks of tensors by others, and restore them."""
    changed = [
        (tensor, marks, {name: vars(tensor)[name] for name in _MARKS if name in vars(tensor)})
        for tensor, marks in new_marks
    ]
    try:
        for tensor, marks, old_marks in changed:
            for name in old_marks:
                delattr(tensor, name)
            vars(tensor).update(marks)
        yield
    finally:
        for tensor, _, old_marks in changed:
            vars(tensor).update(old_marks)


def check_marked_dims() -> None:
    """Raise `ConstraintViolationError` when the current capture specialised a dim that `mark_dynamic` wants dynamic."""
    from gearcache.ge_cache.private_torch.under_way import tracing_context

    shape_env: Any = tracing_context().fake_mode.shape_env
    fakes = shape_env.tracked_fakes or []
    contexts = [item.symbolic_context for item in fakes]
    constraints = [size for context in contexts for size in getattr(context, "constraint_sizes", None) or ()]
    if any(constraint is not None and not constraint.warn_only for constraint in constraints):
        shape_env.produce_guards(
            [item.fake for item in fakes], [item.source for item in fakes], input_contexts=contexts, ignore_static=True
        )
