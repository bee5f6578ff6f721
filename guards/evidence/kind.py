"""What a kind of check consists of: `guards/evidence/kinds.py` has a row of these for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgspec import Struct

from gearcache.guards.access import Access, Scope, Walker


class Watching(Protocol):
    """Watches the objects whose change may decide a check otherwise, before they are read: see `guards.watch.facts`."""

    def begin(self, tree: list[Any], scope: Scope) -> None:
        """Prepare for a walk over an evidence tree."""

    def add_root(self, access: Access) -> Any:
        """Watch the root of a path, which the walk reads next."""

    def add_node(self, value: Any, number: int) -> None:
        """Watch what one node of the tree reads of a value, which the walk compares next."""

    def end(self) -> None:
        """Drop what only the walk needed."""

    def add_value(self, value: Any) -> None:
        """Watch a tensor, or the content of a container."""

    def add_content(self, value: Any) -> None:
        """Watch a container that was compared as a whole, and the containers in it."""

    def add_attributes(self, value: Any, names: Iterable[str]) -> None:
        """Watch some attributes of an object."""

    def add_function(self, value: Any) -> None:
        """Watch the code and the defaults of a function."""

    def add_object(self, value: Any) -> None:
        """Watch the class of an object."""

    def add_path(self, access: Access) -> Any:
        """Watch all objects on a path; returns the value at its end."""

    def add_type_test(self, cls: Any) -> None:
        """Watch what `issubclass` reads of a class."""

    def add_classes(self, expected: Any) -> None:
        """Watch what classes define."""

    def add_reached(self, value: Any) -> None:
        """Watch a function and all that it uses."""


class Writer(Protocol):
    """Writes the dispatch, see `guards.dispatch.check_code`. Each path must be asked for in the order of the source."""

    def name(self, word: str) -> str:
        """Return a name that no parameter has."""

    def bind(self, value: Any, word: str = "") -> str:
        """Return a name for an object."""

    def builtin(self, function: Callable[..., Any]) -> str:
        """Return a name for a builtin."""

    def path(self, access: Access) -> str:
        """Return the source of an access path."""


class Kind(Struct, frozen=True, eq=False):
    """One kind of check: all that gearcache does with it. A new kind is one row, and a row of its test."""

    name: str
    #: The plain data to expect, from a value and what is asked about it. Raises `NotConstant` if there is none.
    observe: Callable[[Any, Any], Any]
    #: Whether the check holds for a value. Errors of the value are passed on: then it does not hold.
    holds: Callable[[Any, Any, Walker], bool]
    #: What was found instead, for people.
    found: Callable[[Any, Any, Walker], str]
    #: Watches what the check depends on beside the path to its value; None if nothing.
    watch: Callable[[Watching, Any, Any], None] | None = lambda watching, value, expected: watching.add_value(value)
    #: The check as a boolean expression of the dispatch, from its path, what it expects, and the object to compare
    #: with; None to call `holds` there.
    source: Callable[[Writer, Access, Any, Any], str | None] = lambda writer, access, expected, compared: None
    #: The object that the dispatch compares values with, from the value of the first call; None if there is none.
    compared: Callable[[Any], Any] = lambda value: None
    #: The paths that it leads to beside its own.
    others: Callable[[Any], list[Access]] = lambda expected: []
    #: What is expected, for people.
    wanted: Callable[[Any], str] = repr
    #: What is compared, for people, where the path stands for `{}`.
    subject: str = "{}"
    #: A failure as a sentence, from the path, the expected data, and the texts of what was expected and found.
    words: Callable[[str, Any, str, str], str] | None = None
    #: What a user can do after a failure, where the advice for all evidence does not fit.
    advice: str = ""
    #: Whether it compares code: a change of it makes a stored variant outdated for good.
    is_code: bool = False
    #: Whether it is compared after all others, because it uses the classes that they have seen.
    is_last: bool = False
    #: Whether it reads one key, where the value is a dictionary.
    reads_key: bool = False

    def sentence(self, path: str, expected: Any, present: str) -> str:
        """Return a failure as a sentence."""
        wanted = self.wanted(expected)
        if self.words is not None:
            return self.words(path, expected, wanted, present)
        return f"`{path}`: {self.name} was {wanted}, is now {present}"


def of_value(name: str, plain: Callable[[Any], Any], **others: Any) -> Kind:
    """Return a kind that compares plain data of a value."""
    row: dict[str, Any] = {
        "observe": lambda value, argument: plain(value),
        "holds": lambda value, expected, walker: bool(plain(value) == expected),
        "found": lambda value, expected, walker: repr(plain(value)),
    }
    return Kind(name, **(row | others))


def of_question(
    name: str,
    answer: Callable[[Any, Any], bool],
    *,
    was: str,
    now: Callable[[Any, Any], str],
    **others: Any,
) -> Kind:
    """Return a kind that asks a value about the expected data.

    A failure is the sentence of `was`, which has `{}` where the expected data is, and what `now` finds instead.
    """
    row: dict[str, Any] = {
        "observe": lambda value, argument: argument,
        "holds": lambda value, expected, walker: answer(value, expected),
        "found": lambda value, expected, walker: now(value, expected),
        "words": lambda path, expected, wanted, present: f"`{path}`: {was.format(wanted)}, is now {present}",
    }
    return Kind(name, **(row | others))


def of_relation(
    name: str,
    others: Callable[[Any], list[Access]],
    answer: Callable[[Any, Any, list[Any]], bool],
    **more: Any,
) -> Kind:
    """Return a kind that relates a value to those at other paths, in order."""

    def holds(value: Any, expected: Any, walker: Walker) -> bool:
        return answer(value, expected, [walker.resolve(other) for other in others(expected)])

    def watch(watching: Watching, value: Any, expected: Any) -> None:
        for other in others(expected):
            watching.add_path(other)

    row: dict[str, Any] = {
        "observe": lambda value, argument: argument,
        "holds": holds,
        "found": lambda value, expected, walker: "otherwise",
        "watch": watch,
        "others": others,
    }
    return Kind(name, **(row | more))
