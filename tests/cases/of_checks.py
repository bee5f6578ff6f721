"""What a program may add to the answer of `isinstance` and `issubclass`."""

import abc
import collections.abc
import functools
import typing

from tests.cases.case import Case, changed, texts


class Shape(abc.ABC):
    pass


class Square:
    pass


class Hooked(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        return NotImplemented


@typing.runtime_checkable
class Named(typing.Protocol):
    name: str


@typing.runtime_checkable
class Drawable(typing.Protocol):
    def draw(self): ...


class Checked(type):
    def __instancecheck__(cls, instance):
        return cls.accepts


class Loose(metaclass=Checked):
    accepts = False


class CheckedSubclass(type):
    def __subclasscheck__(cls, other):
        return True


class LooseOfClasses(metaclass=CheckedSubclass):
    pass


@functools.singledispatch
def described(value, x):
    return x * 2


class Disguised:
    @property
    def __class__(self):
        return Square


class Net(Case):
    def __init__(self):
        super().__init__()
        self.object, self.disguised = Square(), Disguised()


def registered(cls):
    """Return the change that registers a class, and makes the registry anew afterwards: it cannot be taken back."""

    def change(self, patch):
        from _abc import _get_dump, _reset_caches, _reset_registry

        before = [reference() for reference in _get_dump(cls)[0]]

        def undo():
            _reset_registry(cls)
            for each in before:
                cls.register(each)
            _reset_caches(cls)

        cls.register(Square)
        patch.callback(undo)

    return change


def asked_anew(patch, cls):
    """Let a class forget what it has answered, now and at the end."""
    from _abc import _reset_caches

    _reset_caches(cls)
    patch.callback(_reset_caches, cls)


def hook_accepts(self, patch):
    patch(Hooked, "__subclasshook__", classmethod(lambda cls, other: other is Square))
    asked_anew(patch, Hooked)


def square_is_described(self, patch):
    described.register(Square, lambda value, x: x * 7)
    cells = dict(zip(described.register.__code__.co_freevars, described.register.__closure__, strict=True))
    patch.callback(described._clear_cache)
    patch.callback(cells["registry"].cell_contents.pop, Square)


CASES = changed(
    Net,
    {
        "a class is registered": ("return x * 2 if isinstance(self.object, Shape) else x * 3", registered(Shape)),
        "a class is registered with one of the library": (
            "return x * 2 if isinstance(self.object, collections.abc.Mapping) else x * 3",
            registered(collections.abc.Mapping),
        ),
        "a subclass hook": ("return x * 2 if isinstance(self.object, Hooked) else x * 3", hook_accepts),
        "a single dispatch gets a type": ("return described(self.object, x)", square_is_described),
        "a pattern is matched": (
            """
            match self.object:
                case Shape():
                    return x * 2
                case _:
                    return x * 3
            """,
            registered(Shape),
        ),
    },
)
REFUSED = texts(
    Net,
    {
        "a protocol is met by a method": "return x * 2 if isinstance(self.object, Drawable) else x * 3",
        "a protocol is met by an attribute": "return x * 2 if isinstance(self.object, Named) else x * 3",
        "a class is asked for a protocol": "return x * 2 if issubclass(Square, Drawable) else x * 3",
        "a metaclass accepts a tensor": "return x * 2 if isinstance(x, Loose) else x * 3",
        "a metaclass accepts a class": "return x * 2 if issubclass(Square, LooseOfClasses) else x * 3",
    },
    refused="a protocol, or a class whose metaclass has an `__instancecheck__` or `__subclasscheck__`",
)
DISGUISED = texts(
    Net,
    {"an object names its class": "return x * 2 if isinstance(self.disguised, Shape) else x * 3"},
    refused="it asks for the class of a `.*Disguised`, which has its own answer",
)
