"""Turn facts that a trace read from the process into checks; facts that no other process can compare are refused."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from msgspec import Struct, field

from gearcache.errors import CaptureError
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.code import closed_over
from gearcache.guards.evidence.constants import NotConstant, wanted_key
from gearcache.guards.evidence.members import all_names, classes_plain, is_fixed, is_immutable, is_of_user
from gearcache.guards.evidence.names import module_of, name_of

BUILTINS = Access(("builtins", ""))
_IGNORED_MODULES = ("torch._dynamo", "torch._guards", "torch.fx", "torch._subclasses", "gearcache.")


class Met(Struct):
    """A class: the sources where the trace found it, and whether the method makes objects of it."""

    sources: dict[Any, None] = field(default_factory=dict)
    made: bool = False


class FactChecks:
    """Turns the facts that one trace noted into checks, through paths that another process can follow."""

    def __init__(self, log: TraceLog, paths: Paths) -> None:
        self._method, self._log, self._paths = log.method, log, paths
        self._classes = _met_classes(log)
        #: The first answer to each question about an attribute.
        self._attributes: dict[tuple[Any, str], bool] = {}
        #: The classes, bases included, and the names that are compared of them.
        self._compared_classes: set[type] = set()
        self._compared_names: frozenset[str] = frozenset()

    def checks(self, names: set[str]) -> list[Check]:
        """Return the facts as checks that hold now; `names` are those that may have been looked up in classes."""
        checks = [
            check for kind, make in self.MAKERS.items() for note in self._log.of(kind) for check in make(self, *note)
        ]
        return [*checks, self._class_check(names)]

    def compares(self, cls: type, name: str) -> bool:
        """Whether the checks compare by which class, if any, a name is defined for objects of a class."""
        are_compared = all(is_immutable(base) or base in self._compared_classes for base in cls.__mro__)
        return are_compared and (name in self._compared_names or is_fixed(cls))

    def compared_code(self) -> Iterator[types.CodeType]:
        """Yield the code that is compared with the classes that the method makes objects of (`definition`)."""
        made = [
            base for cls, record in self._classes.items() if record.made for base in cls.__mro__ if is_of_user(base)
        ]
        members = [value for base in made for name, value in vars(base).items() if name in self._made_names]
        for function in (getattr(value, "__func__", value) for value in members):
            if isinstance(function, types.FunctionType):
                inner = [each for each in closed_over(function) if isinstance(each, types.FunctionType)]
                yield from (each.__code__ for each in (function, *inner))

    def _order(self, source: Any) -> Iterator[Check]:
        access = self._paths.find(source)
        if access is None:
            raise CaptureError(self._method, "it goes through a set to which no path leads: use `sorted(...)`")
        try:
            yield observe("order", access, self._paths.walker.resolve(access))
        except NotConstant as error:
            raise CaptureError(
                self._method,
                f"it goes through the set `{access.text}`, whose items (a {error}) have another order in each process: "
                "use a list or a dict",
            ) from None

    def _attribute(self, source: Any, name: str, present: bool) -> Iterator[Check]:
        is_first_answer = self._attributes.setdefault((source, name), present) is present
        access = self._paths.find(source)
        if access is None or not is_first_answer or access.root[1].startswith("torch._dynamo"):
            return
        try:
            holds = hasattr(self._paths.walker.resolve(access), name) is present
        except Exception:
            return
        if (
            holds
        ):  # Dynamo's answer about an absent method of a tensor may differ from `hasattr`, and is guarded elsewhere
            yield Check("has_attr" if present else "no_attr", access, name)

    def _made_attribute(self, source: Any, name: str) -> Iterator[Check]:
        access = self._paths.find(source)
        if access is not None:
            yield Check("not_own", access, name)

    def _own_key(self, source: Any, key: Any) -> Iterator[Check]:
        access, attributes = self._own_attributes(source)
        yield Check("contains" if key in attributes else "lacks", access, wanted_key(key))

    def _own_keys(self, source: Any) -> Iterator[Check]:
        access, attributes = self._own_attributes(source)
        yield observe("keys", access, attributes)

    def _own_attributes(self, source: Any) -> tuple[Access, dict[str, Any]]:
        """Return an object's `__dict__` and the path to it."""
        access, attributes = self._paths.find_value(source)
        if access is None or type(attributes) is not dict:
            raise CaptureError(self._method, "it asks an object for its `__dict__`, and no path leads to that")
        return access, attributes

    def _emptiness(self, source: Any) -> Iterator[Check]:
        access, value = self._paths.find_value(source)
        if access is not None and isinstance(value, dict):  # else an object that the method itself made
            yield observe("empty", access, value)

    def _type_test(
        self, kind: str, tested: type, source: Any, value: Any, asked: list[tuple[Any, Any]], answer: bool
    ) -> Iterator[Check]:
        """Compare an `isinstance` or `issubclass`: of the class tested, about classes with sources."""
        if kind == "instance" and any("__class__" in vars(base) for base in tested.__mro__[:-1]):
            raise CaptureError(
                self._method, f"it asks for the class of a `{name_of(tested)}`, which has its own answer"
            )
        access = self._paths.find(source)
        if access is None or not self._paths.leads_to(access, value):
            access = self._paths.of_class(tested, self._classes.get(tested, Met()).sources)
        elif kind == "instance":
            access = access.then("type")
        checks, answers = [], []
        for target, target_source in asked:
            origin = getattr(target, "__origin__", None)  # of `list[int]`; `types.GenericAlias` has a descriptor there
            cls = origin if isinstance(origin, type) else target
            if not isinstance(cls, type):
                raise CaptureError(self._method, f"it asks whether something is a `{cls!r}`, which is not a class")
            if type(cls).__name__ == "tensortype":
                return  # `torch.FloatTensor` and similar classes: the dtype and the device of each input are checked
            try:
                answers.append(issubclass(tested, cls))
            except TypeError:
                answers.append(False)
            if _is_plain(cls):
                continue
            path = self._paths.of_class(cls, [target_source])
            if path is None or access is None:
                name = name_of(cls if path is None else tested)
                raise CaptureError(
                    self._method, f"no path leads to the class `{name}` that another process could follow"
                )
            checks.append(Check("subclass", access, [path.to_plain(), answers[-1]]))
        if any(answers) is not answer:
            raise CaptureError(
                self._method,
                f"`is{kind}` of a `{name_of(tested)}` and `{name_of(asked[0][0])}` is {any(answers)}, and "
                f"Dynamo takes it for {answer}",
            )
        yield from checks

    def _class_check(self, names: set[str]) -> Check:
        records = {torch.Tensor: Met(), **self._classes}
        instances: dict[type, type] = {}
        for cls in list(records):
            if type(cls) is not type and not is_fixed(type(cls)):
                records.setdefault(type(cls), Met())
                instances.setdefault(type(cls), cls)
        classes_by_path: dict[Access, tuple[type, bool]] = {}
        for cls, record in records.items():
            access = self._paths.of_class(cls, record.sources)
            if access is None and type(cls) in records:
                continue
            if access is None and cls in instances:  # pybind11 gives its metaclasses no name
                instance = self._paths.of_class(instances[cls], records[instances[cls]].sources)
                access = None if instance is None else instance.then("type")
            if access is None:
                raise CaptureError(
                    self._method,
                    f"no path leads to the class `{name_of(cls)}` that another process could follow: "
                    "define it at the top of a module, or keep it in an attribute",
                )
            classes_by_path[access] = (cls, record.made)
            self._compared_classes.update(cls.__mro__)
        self._compared_names = all_names(names, made=False)
        self._made_names = all_names(names, made=True)
        return Check("classes", BUILTINS, classes_plain(classes_by_path, names))

    #: What makes checks of the notes of each kind, in the order in which a miss names them.
    MAKERS: ClassVar[dict[str, Callable[..., Iterator[Check]]]] = {
        "order": _order,
        "attribute": _attribute,
        "made attribute": _made_attribute,
        "own key": _own_key,
        "own keys": _own_keys,
        "emptiness": _emptiness,
        "type test": _type_test,
    }


def _met_classes(log: TraceLog) -> dict[type, Met]:
    """Return the classes that the trace saw, or whose objects it saw or makes."""
    classes: dict[type, Met] = {}
    for cls, source, made in log.of("class"):
        if not isinstance(cls, type) or module_of(cls).startswith(_IGNORED_MODULES) or is_fixed(cls):
            continue
        record = classes.setdefault(cls, Met())
        record.made = record.made or made or isinstance(cls, enum.EnumMeta)
        if source is not None:
            record.sources[source] = None
    return classes


def _is_plain(cls: type) -> bool:
    """Return whether only base classes decide about instances of a class."""
    meta: Any = type(cls)
    return meta.__instancecheck__ is type.__instancecheck__ and meta.__subclasscheck__ is type.__subclasscheck__
