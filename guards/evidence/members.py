"""A snapshot of the class members that a trace may have looked up.

A trace looks up far more on classes than it guards: whether there is a `__bool__`, a `__call__`, an `__iter__`, which
base class defines a name first, whether a name is absent. So for every class that the trace has seen, the names that
the traced code mentions (`names`) and the special names of all protocols are compared: by the class that defines them
and by their kind (a function, a property, a value). A name that no traced code mentions does not count. Functions of
torch's and the standard library's classes must still be their own. Classes whose objects the method makes also count
with the content of their functions, defaults and constants.

Special names are those that the interpreter or torch looks up although no code mentions them. Other names of this form
are notes that libraries store on a class, some only after a first use (`copyreg` adds `__slotnames__` when an object is
copied). They count only where traced code mentions them, as all other names do.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Collection
from typing import Any

from gearcache.guards.access import Access, Walker
from gearcache.guards.evidence.code import is_library_file, is_versioned
from gearcache.guards.evidence.definition import definition_digest
from gearcache.guards.evidence.names import a_type, module_of, name_of
from gearcache.interrupts import raise_interrupt

_OPERATORS = "add sub mul truediv floordiv mod divmod pow lshift rshift and or xor matmul".split()
_PROTOCOLS = (
    # Attributes, descriptors, calls.
    "__getattr__ __getattribute__ __setattr__ __delattr__ __get__ __set__ __delete__ __call__ __slots__ __class__ "
    # Truth, comparison, numbers, texts.
    "__bool__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __abs__ __neg__ __pos__ __invert__ __int__ __float__ "
    "__complex__ __index__ __round__ __trunc__ __floor__ __ceil__ __str__ __repr__ __format__ __bytes__ __fspath__ "
    # Containers and iteration.
    "__len__ __length_hint__ __getitem__ __setitem__ __delitem__ __missing__ __contains__ __iter__ __next__ "
    "__reversed__ __match_args__ "
    # Memory (Python 3.12).
    "__buffer__ __release_buffer__ "
    # Contexts, asynchronous ones too.
    "__enter__ __exit__ __aenter__ __aexit__ __await__ __aiter__ __anext__ "
    # Tests of types, and torch's own protocols.
    "__instancecheck__ __subclasscheck__ __torch_function__ __torch_dispatch__ __array__ __array_priority__"
)
#: Names that the interpreter and torch look up on the classes of objects they see.
MET = frozenset({*_PROTOCOLS.split()} | {f"__{kind}{operator}__" for kind in ("", "r", "i") for operator in _OPERATORS})
#: Names that count as well where the method makes an object of the class.
MADE = frozenset(
    {
        "__class_getitem__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__del__",
        "__init__",
        "__new__",
        "__post_init__",
    }
)
#: Names that the interpreter adds to a class at their first use.
ADDED_LATER = frozenset({"__annotations__", "__slotnames__"})


#: `Py_TPFLAGS_IMMUTABLETYPE`: nothing can be added to the class.
_IMMUTABLE = 1 << 8
_KINDS: dict[type, str] = {
    types.FunctionType: "function",
    property: "property",
    classmethod: "class method",
    staticmethod: "static method",
    type(None): "None",
}
#: The module that wraps functions of torch's classes once a process has used it.
_INSTRUMENTS = "torch._dynamo"
#: Values that a program may change while it runs. A trace that reads one has a guard.
_CHANGING = (dict, list, set, bytearray)


def is_library(cls: type) -> bool:
    """Whether a class belongs to the interpreter, the standard library or torch, whose versions are in the key."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None:
        return cls.__module__ in sys.builtin_module_names
    return is_library_file(file)


def is_fixed(cls: type) -> bool:
    """Return whether neither a class nor any of its bases can be changed."""
    return all(is_immutable(base) for base in cls.__mro__)


def is_of_user(cls: type) -> bool:
    """Return whether a class may be another one in the next process: neither fixed nor a library's."""
    return not is_immutable(cls) and not is_library(cls)


def is_immutable(cls: type) -> bool:
    """Return whether nothing can be added to a class."""
    return bool(cls.__flags__ & _IMMUTABLE)


def all_names(names: Collection[str], *, made: bool) -> frozenset[str]:
    """Return the names that count for a class: those that traced code mentions, and those of all protocols."""
    counted_names = (frozenset(names) | MET) - ADDED_LATER
    return counted_names | MADE if made else counted_names


class Members:
    """Describes classes for one set of names."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._made_names = all_names(names, made=False), all_names(names, made=True)

    def of(self, cls: type, *, made: bool, library: bool) -> list[str]:
        """Return the members that one class itself defines, sorted; `made`: the method makes objects of it."""
        if is_immutable(cls):
            return []
        names, attributes = self._made_names if made else self._names, cls.__dict__
        lines = []
        for name in names.intersection(attributes):
            value = attributes[name]
            text = f"{name}: {_kind_of(type(value))}"
            if library:
                function_name = getattr(value, "__name__", name)
                if function_name != name and not module_of(value).startswith(_INSTRUMENTS):
                    text = f"{text} {function_name}"
                if is_foreign(value):
                    text = f"{text}, not its own: {definition_digest(value)}"
            elif made and (name == "__dataclass_fields__" or not isinstance(value, _CHANGING)):
                text = f"{text} {definition_digest(value)}"
            lines.append(text)
        if made and isinstance(cls, enum.EnumMeta):
            members: dict[str, Any] = dict(cls.__members__)
            lines += [f"{name} = {definition_digest(item)}" for name, item in members.items()]
        return sorted(lines)


def _kind_of(cls: type) -> str:
    kind = _KINDS.get(cls)
    if kind is not None:
        return kind
    if hasattr(cls, "__set__") or hasattr(cls, "__delete__"):
        return "data descriptor"
    return "descriptor" if hasattr(cls, "__get__") else "value"


def is_foreign(value: Any) -> bool:
    """Return whether a member of a torch or standard library class is a foreign function; torch_npu's count as own."""
    if isinstance(value, property):
        return any(is_foreign(item) for item in (value.fget, value.fset) if item is not None)
    inner = getattr(value, "__func__", value)
    if not isinstance(inner, types.FunctionType) or is_versioned(inner.__code__):
        return False
    return module_of(inner).partition(".")[0] != "torch_npu"


def classes_plain(class_by_access: dict[Access, tuple[type, bool]], names: Collection[str]) -> list[Any]:
    """Return `[names, classes, paths]`: for each class and base its name and members, and for each path its bases.

    Whether a class is the library's is stored as well, since finding out reads the file system. Paths are in the order
    of their texts: two traces may meet the classes in two orders.
    """
    members = Members(names)
    made_classes = {base for cls, is_made in class_by_access.values() if is_made for base in cls.__mro__}
    numbers: dict[type, int] = {}
    classes: list[Any] = []
    paths = []
    for access, (cls, _) in sorted(class_by_access.items(), key=lambda item: item[0].text):
        for base in cls.__mro__:
            if base not in numbers:
                numbers[base] = len(classes)
                kind = {"made": base in made_classes, "library": is_library(base)}
                classes.append([name_of(base), *kind.values(), members.of(base, **kind)])
        paths.append([access.to_plain(), [numbers[base] for base in cls.__mro__]])
    return [sorted(names), classes, paths]


def changed_class(expected: list[Any], walker: Walker) -> tuple[str, str] | None:
    """Return (path, the difference) of the first changed class, or None."""
    names, classes, paths = expected
    members = Members(names)
    compared: dict[type, int] = {}
    for path, numbers in paths:
        try:
            cls = walker.resolve_plain(path)
        except Exception as error:
            raise_interrupt(error)
            return _text(path), f"is not there ({type(error).__name__}: {error})"
        if not isinstance(cls, type):
            return _text(path), f"is {a_type(cls)} now"
        bases = cls.__mro__
        pairs = [pair for pair in zip(bases, numbers) if compared.get(pair[0]) != pair[1]]  # noqa: B905
        if len(bases) != len(numbers) or any(name_of(base) != classes[number][0] for base, number in pairs):
            was, now = (", ".join(each) for each in ([classes[n][0] for n in numbers], map(name_of, bases)))
            return _text(path), f"has the bases {now} now, and had {was}"
        name = classes[numbers[0]][0]
        # A class name that `told_apart` has numbered identifies no class by itself.
        if f"{name}#1" not in walker.classes and walker.classes.setdefault(name, cls) is not cls:
            return _text(path), "is another class than that of the objects"
        for base, number in pairs:
            name, is_made, library, members_then = classes[number]
            members_now = members.of(base, made=is_made, library=library)
            if members_now != members_then:
                return _text(path), f"{name}: {_difference(members_then, members_now)}"
            compared[base] = number
    return None


def _text(path: Any) -> str:
    return Access.from_plain(path).text


def _difference(then: list[str], now: list[str]) -> str:
    """Return which name differs."""
    other = sorted({*then} ^ {*now})[0]
    name = other.partition(":")[0].partition(" = ")[0]
    before, after = (any(item.partition(":")[0].partition(" = ")[0] == name for item in each) for each in (then, now))
    return f"`{name}` {'was changed' if before and after else 'is gone' if before else 'was added'}"
