"""The kinds of checks, a row each. Evidence, call checks, the watch, messages and people's listings read these rows.

A check is `(kind, access, expected)` with plain data as `expected`. The same check serves as evidence, run once when an
entry is loaded, and as a part of the dispatch, compiled to Python source and run at every call.
"""

from __future__ import annotations

import collections
import types
from typing import Any

import torch

from gearcache.guards.access import Access, Walker, own_attributes
from gearcache.guards.evidence.code import function_plain
from gearcache.guards.evidence.constants import NotConstant, is_identity_constant, readable, to_plain
from gearcache.guards.evidence.definition import definition
from gearcache.guards.evidence.kind import Kind, Writer, of_question, of_value
from gearcache.guards.evidence.members import changed_class
from gearcache.guards.evidence.names import a_type, name_of
from gearcache.guards.evidence.relations import RELATIONS
from gearcache.guards.evidence.tensor_facts import is_tensor, tensor_plain, tensor_predicate, tensor_text
from gearcache.guards.keys import asked_key, has_key, is_asked


def named(value: Any) -> str:
    """Return a name that includes the type of the value: a function may have copied the name of what it wraps."""
    is_its_own = isinstance(value, (type, types.ModuleType))
    return name_of(value) if is_its_own else f"{name_of(value)} ({name_of(type(value))})"


def _constant(value: Any) -> Any:
    try:
        return to_plain(value)
    except NotConstant as error:
        return ["other", str(error)]


def _constants(value: Any) -> Any:
    return [_constant(item) for item in value]


def _all_plain(value: Any, argument: Any) -> Any:
    return [to_plain(item) for item in value]


def _constants_text(plain: Any) -> str:
    return readable(["list", plain])


def _contains(value: Any, key: Any) -> bool:
    if type(key) is str and type(value) is dict:
        return key in value
    if is_asked(key):
        return has_key(value, asked_key(key))
    return any(_constant(item) == key for item in value)


def _key_text(key: Any) -> str:
    return repr(asked_key(key)) if is_asked(key) else readable(key)


def _positions(value: Any) -> list[int]:
    """Return, in the order of iteration, the position of each key among all in the order in which they were added."""
    positions = {key: position for position, key in enumerate(dict.keys(value))}
    return [positions[key] for key in collections.OrderedDict.__iter__(value)]


def _process_group(value: Any) -> Any:
    """Return name and ranks of a group: graphs contain the name, and the ranks identify its members."""
    distributed = torch.distributed
    if not distributed.is_available() or not isinstance(value, distributed.ProcessGroup):
        raise TypeError(f"{a_type(value)} is not a process group")
    try:
        return [value.group_name, list(distributed.get_process_group_ranks(value))]
    except RuntimeError as error:
        raise LookupError(str(error)) from error


def _is_one_class(cls: Any, expected: str, walker: Walker) -> bool:
    """Whether all checks with this text see the same class: a name may denote two classes.

    Where the checks were made with two classes of one name, `told_apart` has numbered them.
    """
    if not isinstance(cls, type):
        return True
    return walker.classes.setdefault(expected, cls) is cls and walker.names.setdefault(cls, expected) == expected


def _has_type(value: Any, expected: str, walker: Walker) -> bool:
    cls = type(value)
    return name_of(cls) == expected.partition("#")[0] and _is_one_class(cls, expected, walker)


def _has_name(value: Any, expected: str, walker: Walker) -> bool:
    return named(value) == expected.partition("#")[0] and _is_one_class(value, expected, walker)


def _found_name(present: str, expected: str) -> str:
    return "another class of this name" if present == expected.partition("#")[0] else repr(present)


def reached(value: Any) -> Any:
    """Return the plain form of a function and of all that it uses."""
    # Imported here: few graphs hold a function untraced.
    from gearcache.guards.evidence.identity import described

    return described(value, name_of(value))


def _found_function(value: Any, expected: Any, walker: Walker) -> str:
    """Return the file and line of a function instead of its name, with its own name where that differs."""
    inner = getattr(value, "__func__", value)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, types.CodeType):
        return f"{a_type(value)}, `{name_of(inner)}`"
    place = f"in `{code.co_filename}`, line {code.co_firstlineno}"
    return (
        f"other code of this name {place}" if name_of(inner) == expected[0] else f"another: `{name_of(inner)}` {place}"
    )


def _found_class(value: Any, expected: Any, walker: Walker) -> str:
    name, change = changed_class(expected, walker) or ("", "")
    return f"`{name}` {change}"


def _constant_source(writer: Writer, access: Access, expected: Any, compared: Any) -> str | None:
    if expected is None:
        return f"{writer.path(access)} is None"
    if expected in (["bool", True], ["bool", False]):
        return f"{writer.path(access)} is {expected[1]!r}"
    if type(expected) in (int, str):
        kind, met, value = writer.builtin(type(expected)), writer.name("met"), writer.path(access)
        return f"{writer.builtin(type)}({met} := {value}) is {kind} and {met} == {expected!r}"
    if compared is not None:
        return f"{writer.path(access)} {'==' if type(compared) is torch.device else 'is'} {writer.bind(compared)}"
    return None


def _identity_source(writer: Writer, access: Access, expected: Any, compared: Any) -> str | None:
    is_made_anew = isinstance(compared, types.MethodWrapperType)
    return None if is_made_anew else f"{writer.path(access)} is {writer.bind(compared)}"


def _watch_attribute(watching: Any, value: Any, expected: Any) -> None:
    watching.add_attributes(value, (str(expected),))


def _watch_function(watching: Any, value: Any, expected: Any) -> None:
    watching.add_function(value)


def _of_items(name: str, **others: Any) -> Kind:
    """Return a kind that compares the items of a container, as constants in their order."""
    return of_value(
        name,
        _constants,
        observe=_all_plain,
        found=lambda value, expected, walker: _constants_text(_constants(value)),
        wanted=_constants_text,
        **others,
    )


def _attribute_test(name: str, *, is_there: bool) -> Kind:
    """Return the kind of `hasattr`, which expects the name of the attribute."""
    negation = "" if is_there else "not "
    return of_question(
        name,
        lambda value, attribute: hasattr(value, attribute) is is_there,
        was=f"attribute {{}} was {negation}there",
        now=lambda value, attribute: f"{'not ' if is_there else ''}there",
        watch=_watch_attribute,
        source=lambda writer, access, expected, compared: (
            f"{negation}{writer.builtin(hasattr)}({writer.path(access)}, {str(expected)!r})"
        ),
    )


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *RELATIONS,
        # The exact type has this `module:qualname`, and all checks with this text see one type.
        of_value(
            "type",
            lambda value: name_of(type(value)),
            holds=_has_type,
            found=lambda value, expected, walker: _found_name(name_of(type(value)), expected),
            watch=lambda watching, value, expected: watching.add_object(value),
            source=lambda writer, access, expected, compared: (
                f"{writer.builtin(type)}({writer.path(access)}) is {writer.bind(compared)}"
            ),
            compared=type,
        ),
        of_value(
            "constant",
            _constant,
            observe=lambda value, argument: to_plain(value),
            found=lambda value, expected, walker: readable(_constant(value)),
            watch=lambda watching, value, expected: watching.add_content(value),
            source=_constant_source,
            compared=lambda value: value if type(value) is torch.device or is_identity_constant(value) else None,
            wanted=readable,
        ),
        of_value(
            "length",
            len,
            subject="len({})",
            source=lambda writer, access, expected, compared: (
                f"{writer.builtin(len)}({writer.path(access)}) == {int(expected)}"
            ),
        ),
        _of_items(
            "keys",
            words=lambda path, expected, wanted, present: f"`{path}` had the keys {wanted}, has now {present}",
        ),
        of_value(
            "positions",
            _positions,
            words=lambda path, expected, wanted, present: f"the keys of `{path}` go in another order",
        ),
        _of_items(
            "order",
            words=lambda path, expected, wanted, present: (
                f"the set `{path}` held {wanted} in this order, holds now {present} (the order of a set of texts "
                "differs in each process unless PYTHONHASHSEED is set)"
            ),
            advice="go through a tuple, or through `sorted(...)` of the set: their order is the same in each process",
        ),
        _attribute_test("has_attr", is_there=True),
        _attribute_test("no_attr", is_there=False),
        of_question(
            "not_own",
            lambda value, name: name not in (own_attributes(value) or ()),
            was="attribute {} was not its own",
            now=lambda value, name: "its own",
            watch=_watch_attribute,
        ),
        of_question(
            "contains",
            _contains,
            was="{} was in it",
            now=lambda value, key: "not in it",
            wanted=_key_text,
            reads_key=True,
        ),
        of_question(
            "lacks",
            lambda value, key: not _contains(value, key),
            was="{} was not in it",
            now=lambda value, key: "in it",
            wanted=_key_text,
            source=lambda writer, access, expected, compared: (
                f"{expected!r} not in {writer.path(access)}" if isinstance(expected, str) else None
            ),
            reads_key=True,
        ),
        of_value(
            "not_none",
            lambda value: value is not None,
            watch=None,
            source=lambda writer, access, expected, compared: f"{writer.path(access)} is not None",
        ),
        of_value(
            "empty",
            lambda value: not value,
            source=lambda writer, access, expected, compared: f"{'not ' if expected else ''}{writer.path(access)}",
        ),
        of_value(
            "name",
            named,
            holds=_has_name,
            found=lambda value, expected, walker: _found_name(named(value), expected),
            watch=None,
            source=_identity_source,
            compared=lambda value: value,
        ),
        of_value(
            "function",
            function_plain,
            found=_found_function,
            watch=_watch_function,
            source=_identity_source,
            compared=lambda value: value,
            words=lambda path, expected, wanted, present: (
                f"`{path}` was the function `{expected[0]}`, is now {present}"
            ),
            is_code=True,
        ),
        of_value(
            "definition",
            definition,
            watch=_watch_function,
            words=lambda path, expected, wanted, present: f"`{path}` or its defaults were changed",
            is_code=True,
        ),
        of_value(
            "reached",
            reached,
            watch=lambda watching, value, expected: watching.add_reached(value),
            words=lambda path, expected, wanted, present: (
                f"`{path}`, which the graph holds untraced, or what it uses was changed"
            ),
            is_code=True,
        ),
        of_value("process_group", _process_group),
        of_value(
            "bases",
            lambda value: [name_of(base) for base in value.__mro__],
            watch=None,
        ),
        of_question(
            "tensor",
            is_tensor,
            was="was {}",
            now=lambda value, expected: tensor_text(tensor_plain(value, sizes=len(expected) > 4)),
            wanted=tensor_text,
            source=lambda writer, access, expected, compared: (
                f"{writer.bind(tensor_predicate(expected))}({writer.path(access)})"
            ),
        ),
        # Definitions of classes, see `guards.evidence.members`.
        Kind(
            "classes",
            observe=lambda value, argument: argument,
            holds=lambda value, expected, walker: changed_class(expected, walker) is None,
            found=_found_class,
            watch=lambda watching, value, expected: watching.add_classes(expected),
            words=lambda path, expected, wanted, present: f"what a class defines was changed: {present}",
            is_code=True,
            is_last=True,
        ),
    )
}
