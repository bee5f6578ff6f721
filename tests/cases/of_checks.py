"""What a program may add to the answer of `isinstance` and `issubclass`."""

import abc
import collections.abc
import functools
import numbers
import types
import typing

import torch

from tests.cases.case import Case, case


class Shape(abc.ABC):
    pass


class Square:
    pass


class Circle:
    pass


class Hooked(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        return NotImplemented


class Drawn(typing.Protocol):
    def draw(self): ...


@typing.runtime_checkable
class Named(typing.Protocol):
    name: str


@typing.runtime_checkable
class Drawable(typing.Protocol):
    def draw(self): ...


class Checked(type):
    def __instancecheck__(cls, instance):
        return cls.accepts

    def __subclasscheck__(cls, other):
        return cls.accepts


class Loose(metaclass=Checked):
    accepts = False


class Bare(type):
    pass


class Open(metaclass=Bare):
    pass


@functools.singledispatch
def described(value, x):
    return x * 2


@described.register
def _(value: int, x):
    return x * 3


class WithSquare(Case):
    def __init__(self):
        super().__init__()
        self.object = Square()


@case(of=WithSquare, change=lambda self, patch: registered(patch, Shape, Square))
def a_class_is_registered(self, x):
    return x * 2 if isinstance(self.object, Shape) else x * 3


def registered(patch, cls, other):
    """Register, and make the class anew afterwards: a registration cannot be taken back."""
    cls.register(other)

    def undo():
        from _abc import _reset_caches, _reset_registry

        _reset_registry(cls)
        _reset_caches(cls)

    patch.callback(undo)


@case(of=WithSquare, change=lambda self, patch: registered(patch, Shape, Square))
def a_class_is_registered_for_subclasses(self, x):
    return x * 2 if issubclass(type(self.object), Shape) else x * 3


@case(of=WithSquare, change=lambda self, patch: registered(patch, Shape, Square))
def a_class_is_registered_in_a_union(self, x):
    return x * 2 if isinstance(self.object, int | Shape) else x * 3


@case(change=lambda self, patch: registered(patch, Shape, Square))
def an_object_made_is_checked(self, x):
    return x * 2 if isinstance(Square(), Shape) else x * 3


@case(change=lambda self, patch: registered(patch, Shape, types.GeneratorType))
def a_generator_is_asked_about(self, x):
    return x * 2 if isinstance((n for n in (1, 2)), Shape) else x * 3


@case(values=lambda: [torch.ones(4), [torch.ones(4)]], change=lambda self, patch: registered(patch, Shape, list))
def a_list_of_tensors_is_asked_about(self, x):
    return x * self.values[0] if isinstance(self.values, Shape) else x * self.values[1][0] * 3


@case(of=WithSquare, change=lambda self, patch: registered_library(patch, collections.abc.Mapping, Square))
def a_mapping_is_registered(self, x):
    return x * 2 if isinstance(self.object, collections.abc.Mapping) else x * 3


def registered_library(patch, cls, other):
    """Register with a class of the library; undone by the class of a copy of the object."""
    from _abc import _get_dump, _reset_caches, _reset_registry

    before = [reference() for reference in _get_dump(cls)[0]]
    cls.register(other)

    def undo():
        _reset_registry(cls)
        for each in before:
            cls.register(each)
        _reset_caches(cls)

    patch.callback(undo)


@case(change=lambda self, patch: registered_library(patch, numbers.Number, str))
def a_number_is_registered(self, x):
    return x * 2 if isinstance("text", numbers.Number) else x * 3


@case()
def a_tensor_is_registered(self, x):
    return x * 2 if isinstance(x, numbers.Number) else x * 3


@a_tensor_is_registered.changed
def _(self, patch):
    import torch

    registered_library(patch, numbers.Number, torch.Tensor)


@case(change=lambda self, patch: registered(patch, Shape, the_module_is_registered))
def the_module_is_registered(self, x):
    return x * 2 if isinstance(self, Shape) else x * 3


@case(of=WithSquare)
def a_subclass_hook(self, x):
    return x * 2 if isinstance(self.object, Hooked) else x * 3


@a_subclass_hook.changed
def _(self, patch):
    patch(Hooked, "__subclasshook__", classmethod(lambda cls, other: other is Square))
    reset(patch, Hooked)


def reset(patch, cls):
    from _abc import _reset_caches

    _reset_caches(cls)
    patch.callback(_reset_caches, cls)


@case(of=WithSquare)
def a_protocol_is_met_by_a_method(self, x):
    return x * 2 if isinstance(self.object, Drawable) else x * 3


@a_protocol_is_met_by_a_method.changed
def _(self, patch):
    patch(Square, "draw", lambda self: 1)
    reset(patch, Drawable)


@case(of=WithSquare, change=lambda self, patch: patch(self.object, "name", "square"))
def a_protocol_is_met_by_an_attribute(self, x):
    return x * 2 if isinstance(self.object, Named) else x * 3


@case(of=WithSquare, patched=(Loose, "accepts", True))
def a_metaclass_accepts(self, x):
    return x * 2 if isinstance(self.object, Loose) else x * 3


@case(of=WithSquare, patched=(Bare, "__instancecheck__", lambda cls, instance: True))
def a_metaclass_gets_a_check(self, x):
    return x * 2 if isinstance(self.object, Open) else x * 3


@case(of=WithSquare, patched=(Bare, "__subclasscheck__", lambda cls, other: True))
def a_metaclass_gets_a_subclass_check(self, x):
    return x * 2 if issubclass(type(self.object), Open) else x * 3


@case(patched=(Loose, "accepts", True))
def a_metaclass_accepts_a_tensor(self, x):
    return x * 2 if isinstance(x, Loose) else x * 3


@case(of=WithSquare)
def a_single_dispatch_gets_a_type(self, x):
    return described(self.object, x)


@a_single_dispatch_gets_a_type.changed
def _(self, patch):
    described.register(Square, lambda value, x: x * 7)

    cells = dict(zip(described.register.__code__.co_freevars, described.register.__closure__, strict=True))
    patch.callback(described._clear_cache)
    patch.callback(cells["registry"].cell_contents.pop, Square)


@case(of=WithSquare, change=lambda self, patch: registered(patch, Shape, Square))
def pattern_matching(self, x):
    match self.object:
        case Shape():
            return x * 2
        case _:
            return x * 3
