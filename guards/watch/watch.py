"""The watch over what loaded graphs depend on: one question before every call.

`guards.watch._watched`, a small extension in C, answers it in about a nanosecond for each dictionary and tensor. Where
it was not built (no compiler when gearcache was installed), or does not support this torch, Python code answers it,
which takes some ten microseconds for a model of a hundred modules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch

from gearcache.guards.watch.facts import WatchedFacts
from gearcache.guards.watch.objects import slot_value
from gearcache.guards.watch.tensor_layout import find_layout


class Watch(Protocol):
    """The state of objects at the time when the watch was made."""

    def holds(self) -> bool:
        """Return whether they are unchanged."""
        ...

    def changed(self) -> tuple[str, int] | None:
        """Return kind and number of the first changed object, or None."""
        ...


class Watched:
    """The watch over some facts, with texts for changes."""

    def __init__(self, facts: WatchedFacts) -> None:
        self._facts = facts
        dicts: tuple[tuple[Any, Any], ...] = (
            *((holder, None if keys is None else tuple(keys)) for holder, keys, _ in facts.dicts.values()),
            *facts.named.values(),
        )
        lists = tuple((value, tuple(value)) for value in facts.lists.values())
        collections = tuple((value, tuple(value)) for value in facts.collections.values())
        cells = tuple((cell, cell.cell_contents) for cell in facts.cells.values())
        slots = tuple(
            (holder, (descriptor, slot_value(descriptor, holder))) for holder, descriptor in facts.slots.values()
        )
        tensors, classes = tuple(facts.tensors.values()), tuple(facts.classes.values())
        functions = tuple(facts.functions.values())
        questions = tuple((question, question()) for question in facts.questions.asked.values())
        contents = (dicts, lists, collections, cells, slots, tensors, classes, functions, questions)
        self._watch: Watch = watch_class()(*contents)
        own_functions = () if facts.method is None else (facts.method,)
        self._uncovered: Watch = watch_class()((), (), (), (), (), tensors, (), own_functions, ())
        #: Whether nothing changed; called by the dispatch.
        self.holds: Callable[[], bool] = self._watch.holds

    def change(self) -> str | None:
        """Return a text that names the change; None where nothing changed."""
        first_change = self._watch.changed()
        if first_change is None:
            return None
        kind, number = first_change
        if kind == "class" or (kind == "dictionary" and number >= len(self._facts.dicts)):
            classes = list(self._facts.classes.values())
            if kind != "class":
                number, classes = number - len(self._facts.dicts), [cls for cls, _ in self._facts.named.values()]
            return f"the class {classes[number].__qualname__}"
        if kind == "function":
            return f"the function {list(self._facts.functions.values())[number].__qualname__}"
        if kind == "question":
            return self._facts.questions.text(number)
        if kind == "dictionary" and number >= 0:
            _, keys, owner = list(self._facts.dicts.values())[number]
            keys_text = "its keys" if keys is None else ", ".join(str(key) for key in list(keys)[:4])
            return f"{owner} ({keys_text})"
        if kind == "tensor":
            return f"the memory of a weight of shape {tuple(list(self._facts.tensors.values())[number].shape)}"
        return f"a {kind} that the trace read"

    def has_changed_untold(self) -> bool:
        """Return whether something changed that no evidence covers: a tensor's memory, the method's code or
        defaults.
        """
        return not self._uncovered.holds()


@functools.cache
def watch_class() -> Callable[..., Watch]:
    """Return the class in C if it works with this torch, else the one in Python."""
    if (native := _native_watch()) is not None:
        return native
    from gearcache.guards.watch.python_watch import PythonWatch

    return PythonWatch


def _native_watch() -> Callable[..., Watch] | None:
    try:
        from gearcache.guards.watch._watched import Watch as NativeWatch
        from gearcache.guards.watch._watched import set_tensor_layout
    except ImportError:
        return None
    layout = find_layout()
    if layout is None:
        return None
    set_tensor_layout(torch.Tensor, *layout)
    return NativeWatch if sees_moved_memory(NativeWatch) else None


def sees_moved_memory(watch: Callable[..., Watch]) -> bool:
    """Return whether a kind of watch notices every way in which a tensor's memory moves, and nothing else."""
    with torch.inference_mode(False), torch.no_grad():
        for shape, move, is_seen in _MOVES:
            tensor = torch.nn.Parameter(torch.zeros(shape, device="cpu"), requires_grad=False)
            snapshot = watch((), (), (), (), (), (tensor,), (), (), ())
            if not snapshot.holds():
                return False
            move(tensor)
            if snapshot.holds() is is_seen:
                return False
    return True


def _exchange(tensor: Any) -> None:
    tensor.data = torch.zeros(4, 4, device="cpu")


def _shift(tensor: Any) -> None:
    buffer = torch.zeros(32, device="cpu")
    tensor.set_(buffer.untyped_storage(), 16, (4, 4), (4, 1))


def _resize(tensor: Any) -> None:
    tensor.untyped_storage().resize_(0)


def _permute(tensor: Any) -> None:
    tensor.data = tensor.data.transpose(-1, -2)


def _write(tensor: Any) -> None:
    tensor.add_(1)


#: Shape of a tensor, an operation on it, and whether the watch must notice it.
_MOVES: list[tuple[tuple[int, ...], Callable[[Any], None], bool]] = [
    ((4, 4), _exchange, True),
    ((4, 4), _permute, True),
    ((2, 4, 4), _permute, True),
    ((1, 1, 1, 1, 1, 4, 4), _permute, True),
    ((4, 4), _shift, True),
    ((4, 4), _resize, True),
    ((4, 4), _write, False),
]
