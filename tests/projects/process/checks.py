"""What a program may add to the answer of `isinstance` and `issubclass`."""

import abc
import collections.abc
import functools
import numbers
import types
import typing

import torch
from fact import Fact


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


class WithSquare(Fact):
    def __init__(self):
        super().__init__()
        self.object = Square()


class AClassIsRegistered(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, Square)


def registered(patch, cls, other):
    """Register, and make the class anew afterwards: a registration cannot be taken back."""
    cls.register(other)

    def undo():
        from _abc import _reset_caches, _reset_registry

        _reset_registry(cls)
        _reset_caches(cls)

    patch.callback(undo)


class AClassIsRegisteredForSubclasses(WithSquare):
    def run(self, x):
        return x * 2 if issubclass(type(self.object), Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, Square)


class AClassIsRegisteredForSubclassesByName(Fact):
    def run(self, x):
        return x * 2 if issubclass(Square, Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, Square)


class AClassIsRegisteredAmongOthers(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, (int, Shape)) else x * 3

    def change(self, patch):
        registered(patch, Shape, Square)


class AClassIsRegisteredInAUnion(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, int | Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, Square)


class AnObjectMadeIsChecked(Fact):
    def run(self, x):
        return x * 2 if isinstance(Square(), Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, Square)


class AGeneratorIsAskedAbout(Fact):
    def run(self, x):
        return x * 2 if isinstance((n for n in (1, 2)), Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, types.GeneratorType)


class AViewOfKeysIsAskedAbout(Fact):
    def run(self, x):
        return x * 2 if isinstance({"a": 1}.keys(), Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, type({}.keys()))


class AListOfTensorsIsAskedAbout(Fact):
    def __init__(self):
        super().__init__()
        self.values = [torch.ones(4), [torch.ones(4)]]

    def run(self, x):
        return x * self.values[0] if isinstance(self.values, Shape) else x * self.values[1][0] * 3

    def change(self, patch):
        registered(patch, Shape, list)


class AMappingIsRegistered(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, collections.abc.Mapping) else x * 3

    def change(self, patch):
        registered_library(patch, collections.abc.Mapping, Square)


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


class ANumberIsRegistered(Fact):
    def run(self, x):
        return x * 2 if isinstance("text", numbers.Number) else x * 3

    def change(self, patch):
        registered_library(patch, numbers.Number, str)


class ATensorIsRegistered(Fact):
    def run(self, x):
        return x * 2 if isinstance(x, numbers.Number) else x * 3

    def change(self, patch):
        import torch

        registered_library(patch, numbers.Number, torch.Tensor)


class AListIsRegistered(Fact):
    def __init__(self):
        super().__init__()
        self.items = [1, 2]

    def run(self, x):
        return x * 2 if isinstance(self.items, Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, list)


class TheModuleIsRegistered(Fact):
    def run(self, x):
        return x * 2 if isinstance(self, Shape) else x * 3

    def change(self, patch):
        registered(patch, Shape, TheModuleIsRegistered)


class ASubclassHook(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, Hooked) else x * 3

    def change(self, patch):
        patch(Hooked, "__subclasshook__", classmethod(lambda cls, other: other is Square))
        reset(patch, Hooked)


def reset(patch, cls):
    from _abc import _reset_caches

    _reset_caches(cls)
    patch.callback(_reset_caches, cls)


class AProtocolIsMetByAMethod(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, Drawable) else x * 3

    def change(self, patch):
        patch(Square, "draw", lambda self: 1)
        reset(patch, Drawable)


class AProtocolIsMetByAnAttribute(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, Named) else x * 3

    def change(self, patch):
        patch(self.object, "name", "square")


class AMetaclassAccepts(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, Loose) else x * 3

    def change(self, patch):
        patch(Loose, "accepts", True)


class AMetaclassAcceptsSubclasses(WithSquare):
    def run(self, x):
        return x * 2 if issubclass(type(self.object), Loose) else x * 3

    def change(self, patch):
        patch(Loose, "accepts", True)


class AMetaclassGetsACheck(WithSquare):
    def run(self, x):
        return x * 2 if isinstance(self.object, Open) else x * 3

    def change(self, patch):
        patch(Bare, "__instancecheck__", lambda cls, instance: True)


class AMetaclassGetsASubclassCheck(WithSquare):
    def run(self, x):
        return x * 2 if issubclass(type(self.object), Open) else x * 3

    def change(self, patch):
        patch(Bare, "__subclasscheck__", lambda cls, other: True)


class AMetaclassAcceptsATensor(Fact):
    def run(self, x):
        return x * 2 if isinstance(x, Loose) else x * 3

    def change(self, patch):
        patch(Loose, "accepts", True)


class AMetaclassAcceptsANumber(Fact):
    def run(self, x):
        return x * 2 if isinstance(3, Loose) else x * 3

    def change(self, patch):
        patch(Loose, "accepts", True)


class ASingleDispatchGetsAType(WithSquare):
    def run(self, x):
        return described(self.object, x)

    def change(self, patch):
        described.register(Square, lambda value, x: x * 7)

        cells = dict(zip(described.register.__code__.co_freevars, described.register.__closure__, strict=True))
        patch.callback(described._clear_cache)
        patch.callback(cells["registry"].cell_contents.pop, Square)


class AnExceptionIsCaughtByRegistration(Fact):
    def run(self, x):
        try:
            raise KeyError("a")
        except LookupError:
            return x * 2

    def change(self, patch):
        pass


class PatternMatching(WithSquare):
    def run(self, x):
        match self.object:
            case Shape():
                return x * 2
            case _:
                return x * 3

    def change(self, patch):
        registered(patch, Shape, Square)
