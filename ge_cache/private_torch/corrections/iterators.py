"""Dynamo hooks that consume iterators, and test membership, as Python does.

For Dynamo an iterator of constants is a constant: a function that receives it leaves it unconsumed. `yield from` gives
None where the generator returned a value, `range` accepts a float, and `in` gives whatever `__contains__` returned.
These hooks do what Python does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.corrections import containers
from gearcache.ge_cache.private_torch.probes import exceptions
from gearcache.ge_cache.private_torch.probes.attributes import with_subclasses
from gearcache.ge_cache.private_torch.renamed import name_here


def watched_iterators(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of Dynamo's functions for iterators, containers and the texts of exceptions."""
    yield from _of_generators()
    yield from _of_list_iterators()
    yield from _of_ranges()
    yield from _of_members()
    yield from _of_extremes(facts)
    yield from containers.watched_containers(facts)
    yield from exceptions.watched_exceptions(facts)


def _of_generators() -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.symbolic_convert import ExceptionStack, InstructionTranslatorBase

    translator: Any = InstructionTranslatorBase
    stack: Any = ExceptionStack
    getter = name_here(stack, "get_current_exception")
    go_to = translator.jump

    @functools.wraps(go_to)
    def jump(self: Any, inst: Any) -> None:
        """Leave a `yield from` with the return value of its generator, which the `StopIteration` holds."""
        # torch 2.14 does so itself, and has dropped the exception by now.
        if getattr(inst, "opname", None) == "SEND" and self.exn_vt_stack._current_exception is not None:
            exception = getattr(self.exn_vt_stack, getter)()
            if exception.python_type() is StopIteration and exception.args:
                self.pop()
                self.push(exception.args[0])
            self.exn_vt_stack.clear_current_exception()
        go_to(self, inst)

    yield translator, "jump", jump


def _of_list_iterators() -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.iter import IteratorVariable

    def as_python_constant(self: Any) -> Any:
        """An iterator is not a constant: its receiver consumes it."""
        raise NotImplementedError

    for kind in with_subclasses(IteratorVariable):  # since torch 2.15 those of tuples and of reversed lists stand apart
        if "as_python_constant" in vars(kind):
            yield kind, "as_python_constant", functools.wraps(vars(kind)["as_python_constant"])(as_python_constant)


def _of_ranges() -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.exc import raise_type_error
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.lists import RangeVariable

    builtin: Any = BuiltinVariable
    ranges: Any = RangeVariable
    constants: Any = ConstantVariable
    membership = name_here(ranges, "sq_contains")
    range_of, contains = builtin.call_range, getattr(ranges, membership)

    @functools.wraps(range_of)
    def call_range(self: Any, tx: Any, *args: Any) -> Any:
        for arg in args:
            if arg.is_python_constant() and not hasattr(arg.as_python_constant(), "__index__"):
                raise_type_error(tx, f"'{arg.python_type_name()}' object cannot be interpreted as an integer")
        return range_of(self, tx, *args)

    @functools.wraps(contains)
    def sq_contains(self: Any, tx: Any, item: Any) -> Any:
        if item.is_python_constant() and self.is_python_constant():
            return constants.create(item.as_python_constant() in self.as_python_constant())
        return contains(self, tx, item)

    yield builtin, "call_range", call_range
    yield ranges, membership, sq_contains


def _of_members() -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.builder import SourcelessBuilder
    from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

    builder: Any = SourcelessBuilder

    def asking(function: Any) -> Any:
        @functools.wraps(function)
        def sq_contains(self: Any, tx: Any, item: Any) -> Any:
            answer = function(self, tx, item)
            if answer.python_type() is bool:
                return answer
            return builder.create(tx, bool).call_function(tx, [answer], {})

        return sq_contains

    classes: Any = UserDefinedClassVariable
    membership = name_here(classes, "sq_contains")
    for owner in (classes, UserDefinedObjectVariable):
        yield owner, membership, asking(vars(owner)[membership])


def _of_extremes(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.builtin import BuiltinVariable

    builtin: Any = BuiltinVariable
    has_tensors = builtin.tensor_args

    @functools.wraps(has_tensors)
    def tensor_args(self: Any, *args: Any) -> bool:
        if self.fn in (max, min) and any(map(_has_several_elements, args)):
            facts.refuse(
                f"it calls `{self.fn.__name__}()` of tensors of several elements, which Python cannot compare: use "
                f"`torch.{self.fn.__name__}imum` or `torch.clamp`"
            )
        return bool(has_tensors(self, *args))

    yield builtin, "tensor_args", tensor_args


def _has_several_elements(variable: Any) -> bool:
    example = variable.as_proxy().node.meta.get("example_value") if variable.is_tensor() else None
    return example is not None and any(size != 1 for size in example.shape)
