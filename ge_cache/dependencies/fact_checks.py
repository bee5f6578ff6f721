"""Turn facts that a trace read from the process into checks; facts that no other process can compare are refused."""

from __future__ import annotations

import _collections_abc
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import FrameNames, UnknownSourceClass, access_of
from gearcache.guards.access import FAULTS, Access, Walker
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.constants import NotConstant, wanted_key
from gearcache.guards.evidence.members import classes_plain, is_fixed
from gearcache.guards.evidence.names import module_of, name_of

BUILTINS = Access(("builtins", ""))


class Met(Struct):
    """A class: the sources where the trace found it, and whether the method makes objects of it."""

    sources: dict[Any, None] = field(default_factory=dict)
    made: bool = False


class TypeTest(Struct, frozen=True):
    """A call of `isinstance` or `issubclass`: the tested class, source and value of the tested object, the answer."""

    kind: str
    cls: type
    source: Any
    value: Any
    asked: tuple[tuple[Any, Any], ...]
    answer: bool


class FactChecks:
    """Turns the noted facts of one trace into checks, through paths that another process can follow."""

    def __init__(self, method: str, names: FrameNames, walker: Walker) -> None:
        self._method, self._names, self._walker = method, names, walker

    def _access(self, source: Any) -> Access | None:
        try:
            return access_of(source, self._names)
        except (UnknownSourceClass, NotConstant):
            return None

    def _path_and_value(self, source: Any) -> tuple[Access | None, Any]:
        """Return the path to a source and its value, (None, None) where no path leads to it."""
        access = self._access(source)
        try:
            return (None, None) if access is None else (access, self._walker.resolve(access))
        except FAULTS:
            return None, None

    def _leads_to(self, access: Access | None, value: Any) -> bool:
        try:
            return access is not None and self._walker.resolve(access) is value
        except FAULTS:
            return False

    def class_path(self, cls: type, sources: Iterable[Any]) -> Access | None:
        """Return where another process finds a class: at one of its sources, or by its name.

        A name may lead to a module that no hit needs to import. The object at a position may move to another one.
        """
        accesses = [access for access in map(self._access, sources) if access is not None]
        fixed = [access for access in accesses if all(not step.startswith("nth_") for step, _ in access.steps)]
        for access in (*fixed, _path_of(cls), *accesses, *_other_paths_of(cls)):
            if not access.root[1].startswith("torch._dynamo") and self._leads_to(access, cls):
                return access
        return None

    def order(self, source: Any) -> Check:
        access = self._access(source)
        if access is None:
            raise CaptureError(self._method, "it goes through a set to which no path leads: use `sorted(...)`")
        try:
            return observe("order", access, self._walker.resolve(access))
        except NotConstant as error:
            raise CaptureError(
                self._method,
                f"it goes through the set `{access.text}`, whose items (a {error}) have another order in each process: "
                "use a list or a dict",
            ) from None

    def constant_order(self, constant: frozenset[Any], functions: dict[Access, types.FunctionType]) -> Check:
        for access, function in functions.items():
            path = _constant_path(function.__code__, constant, access.then("attr", "__code__"))
            if path is not None:
                return observe("order", path, constant)
        raise CaptureError(
            self._method,
            "it goes through a set that is written out in its code, whose order may differ between processes: "
            "use a tuple",
        )

    def attribute(self, source: Any, name: str, present: bool) -> list[Check]:
        access = self._access(source)
        if access is None or access.root[1].startswith("torch._dynamo"):
            return []
        try:
            holds = hasattr(self._walker.resolve(access), name) is present
        except Exception:
            return []
        # Dynamo's answer may differ from `hasattr`: its answer about an absent method of a tensor is guarded elsewhere.
        return [Check("has_attr" if present else "no_attr", access, name)] if holds else []

    def level(self, source: Any, level: int) -> Check:
        access, logger = self._path_and_value(source)
        if access is None:
            raise CaptureError(self._method, "it asks a logger for its level to which no path leads")
        question = access.then("attr", "isEnabledFor").then("called_with", level)
        return observe("constant", question, logger.isEnabledFor(level))

    def made_attribute(self, source: Any, name: str) -> list[Check]:
        access = self._access(source)
        return [] if access is None else [Check("not_own", access, name)]

    def own_key(self, source: Any, key: Any) -> Check:
        access, attributes = self._own_attributes(source)
        return Check("contains" if key in attributes else "lacks", access, wanted_key(key))

    def own_keys(self, source: Any) -> Check:
        access, attributes = self._own_attributes(source)
        return observe("keys", access, attributes)

    def emptiness(self, source: Any) -> list[Check]:
        access, value = self._path_and_value(source)
        if access is None or not isinstance(value, dict):  # an object that the method itself made
            return []
        return [observe("empty", access, value)]

    def _own_attributes(self, source: Any) -> tuple[Access, dict[str, Any]]:
        """Return an object's `__dict__` and the path to it."""
        access, attributes = self._path_and_value(source)
        if access is None or type(attributes) is not dict:
            raise CaptureError(self._method, "it asks an object for its `__dict__`, and no path leads to that")
        return access, attributes

    def type_test(self, test: TypeTest, classes: dict[type, Met]) -> list[Check]:
        checks, answers = [], []
        for target, source in test.asked:
            cls = getattr(target, "__origin__", target)
            if not isinstance(cls, type):
                raise CaptureError(self._method, f"it asks whether something is a `{cls!r}`, which is not a class")
            if type(cls).__name__ == "tensortype":
                return []  # `torch.FloatTensor` and similar classes: the dtype and the device of each input are checked
            location = self._value_path(test, cls, classes)
            if location is None:
                raise CaptureError(
                    self._method,
                    f"it asks whether a `{name_of(test.cls)}` is a `{name_of(cls)}`, which the class decides by "
                    "code of its own, and no path leads there that another process could follow",
                )
            kind, access, value = location
            try:
                answers.append((isinstance if kind == "instance" else issubclass)(value, cls))
            except TypeError:
                answers.append(False)
            if _is_plain(cls):
                continue
            path = self.class_path(cls, [] if source is None else [source])
            if path is None:
                raise CaptureError(
                    self._method, f"no path leads to the class `{name_of(cls)}` that another process could follow"
                )
            if access is not None:
                checks.append(Check(kind, access, [path.to_plain(), answers[-1]]))
        if any(answers) is not test.answer:
            raise CaptureError(
                self._method,
                f"`is{test.kind}` of a `{name_of(test.cls)}` and `{name_of(test.asked[0][0])}` is {any(answers)}, and "
                f"Dynamo takes it for {test.answer}",
            )
        return checks

    def _value_path(
        self, test: TypeTest, target: type, classes: dict[type, Met]
    ) -> tuple[str, Access | None, Any] | None:
        """Return (kind of the check, path, value) for a question about a value or its class."""
        access = self._access(test.source) if test.source is not None else None
        if access is not None and self._leads_to(access, test.value):
            if test.kind == "instance" and type(target).__instancecheck__ is _abc_instancecheck():
                return "subclass", access.then("type"), test.cls
            return test.kind, access, test.value
        if _is_plain(target):
            return "subclass", None, test.cls
        record = classes.get(test.cls, Met())
        access = self.class_path(test.cls, record.sources)
        return None if access is None else ("subclass", access, test.cls)

    def classes(self, records: dict[type, Met], names: set[str]) -> Check:
        import torch

        records = {torch.Tensor: Met(), **records}
        instances: dict[type, type] = {}
        for cls in list(records):
            if type(cls) is not type and not is_fixed(type(cls)):
                records.setdefault(type(cls), Met())
                instances.setdefault(type(cls), cls)
        classes_by_path: dict[Access, tuple[type, bool]] = {}
        for cls, record in records.items():
            access = self.class_path(cls, record.sources)
            if access is None and type(cls) in records:
                continue
            if access is None and cls in instances:  # pybind11 gives its metaclasses no name
                instance = self.class_path(instances[cls], records[instances[cls]].sources)
                access = None if instance is None else instance.then("type")
            if access is None:
                raise CaptureError(
                    self._method,
                    f"no path leads to the class `{name_of(cls)}` that another process could follow: "
                    "define it at the top of a module, or keep it in an attribute",
                )
            classes_by_path[access] = (cls, record.made)
        return Check("classes", BUILTINS, classes_plain(classes_by_path, names))


def _path_of(cls: type) -> Access:
    """Return the path that a class's name describes."""
    access = Access(("module", module_of(cls)))
    for part in cls.__qualname__.split("."):
        access = access.then("attr", part)
    return access


def _other_paths_of(cls: type) -> Iterator[Access]:
    """Yield where the standard library stores unnamed classes of the interpreter (generators)."""
    if cls.__module__ == "builtins":
        # `_collections_abc` has the name `collections.abc`, a module that has only the abstract classes.
        for place, module in (("types", types), ("_collections_abc", _collections_abc)):
            for name in [name for name, value in vars(module).items() if value is cls]:
                yield Access(("module", place)).then("attr", name)


def _is_plain(cls: type) -> bool:
    """Return whether only base classes decide about instances of a class."""
    meta: Any = type(cls)
    return meta.__instancecheck__ is type.__instancecheck__ and meta.__subclasscheck__ is type.__subclasscheck__


@functools.cache
def _abc_instancecheck() -> Any:
    import abc

    return abc.ABCMeta.__instancecheck__


def _constant_path(code: types.CodeType, constant: frozenset[Any], access: Access) -> Access | None:
    for index, value in enumerate(code.co_consts):
        path = access.then("attr", "co_consts").then("item", index)
        if value is constant:
            return path
        if isinstance(value, types.CodeType) and (inner := _constant_path(value, constant, path)) is not None:
            return inner
    return None
