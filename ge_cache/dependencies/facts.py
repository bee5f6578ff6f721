"""Note facts of the process that a trace reads and Dynamo does not guard; they become checks or refusals.

Within one process a class keeps its methods, a set its order, `isinstance` its answer. Another process
may differ in each. So the trace is watched (`private_torch.facts`), and its facts are compared when the entry is
loaded: the members of classes that it saw (`guards.evidence.members`), attributes that were present or absent, answers
of type tests, orders in which sets were iterated. Facts that no other process can compare are refused.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.orders import CAUSE, arranged
from gearcache.ge_cache.capture.source_paths import FrameNames
from gearcache.ge_cache.dependencies.fact_checks import FactChecks, Met, TypeTest
from gearcache.guards.access import MODULE_PARTS, Access, Walker, own_attributes
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.code import code_objects, is_versioned
from gearcache.guards.evidence.members import is_fixed, is_immutable, is_library
from gearcache.guards.evidence.names import module_of, name_of

_FAULTS = (LookupError, AttributeError, TypeError, ImportError, ValueError)
#: Names that are looked up although no traced code mentions them.
_UNMENTIONED = frozenset({"_call_impl", "_missing_", "_slow_forward", "_wrapped_call_impl", "forward"})
_IGNORED_MODULES = ("torch._dynamo", "torch._guards", "torch.fx", "torch._subclasses", "gearcache.")


class Facts(Struct):
    """Notes the facts that a trace reads from the process."""

    method: str
    #: The order of sets that the method makes, of `ge_cache.capture.orders`; "" for the order of insertion.
    arrangement: str = ""
    #: Number of such sets so far whose order may differ in another process.
    made_orders: int = 0
    _names: set[str] = field(default_factory=set)
    _classes: dict[type, Met] = field(default_factory=dict)
    _attributes: dict[tuple[Any, str], bool] = field(default_factory=dict)
    _made_attributes: dict[tuple[Any, str], None] = field(default_factory=dict)
    _own_keys: dict[tuple[Any, Any], None] = field(default_factory=dict)
    _own_dictionaries: dict[Any, None] = field(default_factory=dict)
    _emptiness: dict[Any, None] = field(default_factory=dict)
    _tests: list[TypeTest] = field(default_factory=list)
    _orders: dict[Any, None] = field(default_factory=dict)
    _constants: list[frozenset[Any]] = field(default_factory=list)
    _folded_calls: list[tuple[Any, Any]] = field(default_factory=list)
    _untraced_functions: list[tuple[Any, Any]] = field(default_factory=list)
    _refusals: list[str] = field(default_factory=list)
    _omitted_effects: set[str] = field(default_factory=set)
    _levels: dict[tuple[Any, int], None] = field(default_factory=dict)

    def refuse(self, cause: str) -> None:
        """Note something that no other process can compare."""
        self._refusals.append(cause)

    def raise_refusals(self) -> None:
        """Raise the first refusal."""
        if self._refusals:
            raise CaptureError(self.method, self._refusals[0])

    def left_out(self, what: str) -> None:
        """Note an effect of the method that its graphs leave out."""
        self._omitted_effects.add(what)

    def asked_level(self, source: Any, level: int) -> None:
        """Note that the trace checked whether a logger's level is enabled."""
        self._levels[source, level] = None

    @property
    def all_left_out(self) -> list[str]:
        """The left-out effects, in words."""
        return sorted(self._omitted_effects)

    def met_class(self, cls: Any, source: Any, made: bool = False) -> None:
        """Note a class that the trace saw, or whose objects it saw or makes."""
        if not isinstance(cls, type) or module_of(cls).startswith(_IGNORED_MODULES) or is_fixed(cls):
            return
        record = self._classes.setdefault(cls, Met())
        record.made = record.made or made or isinstance(cls, enum.EnumMeta)
        if source is not None:
            record.sources[source] = None

    def called_class(self, cls: Any, source: Any) -> None:
        """Note a class that the method calls."""
        call: Any = type(cls).__call__
        if isinstance(call, types.FunctionType) and not is_versioned(call.__code__):
            self.refuse(f"it makes a `{name_of(cls)}`, whose metaclass has a `__call__`: a trace does not go there")
        if getattr(cls, "__del__", None) is not None:
            self.refuse(
                f"it makes a `{name_of(cls)}`, whose `__del__` Python would call when the last reference is gone"
            )
            self.raise_refusals()  # before making an example, which would be deleted
        self.met_class(cls, source, made=True)

    def asked_for(self, name: Any) -> None:
        """Note a name that was looked up: the code does not mention every such name."""
        if isinstance(name, str):
            self._names.add(name)

    def attribute(self, source: Any, name: Any, present: bool) -> None:
        """Note that an object had an attribute, or lacked it."""
        if isinstance(name, str):
            self._attributes.setdefault((source, name), present)

    def made_attribute(self, source: Any, value: Any, name: str) -> None:
        """Note an attribute that the class of an object makes in `__getattr__`, because the object has none."""
        attributes = own_attributes(value) or {}
        if name not in attributes and not any(name in attributes.get(part, ()) for part in MODULE_PARTS):
            self._made_attributes[source, name] = None

    def own_key(self, source: Any, key: Any) -> None:
        """Note that the trace looked up a key in an object's `__dict__`."""
        self._own_keys[source, key] = None

    def own_keys(self, source: Any) -> None:
        """Note that the trace read all keys of an object's `__dict__`."""
        self._own_dictionaries[source] = None

    def emptiness(self, source: Any) -> None:
        """Note that the trace checked whether a dictionary is empty."""
        self._emptiness[source] = None

    def of_metaclass(self, cls: type, name: str) -> None:
        """Note an attribute of a class that its metaclass provides."""
        metaclass: type = type(cls)
        for base in metaclass.__mro__:
            if name in vars(base):
                attribute = vars(base)[name]
                if not is_immutable(base) and not is_library(base) and not hasattr(type(attribute), "__get__"):
                    self.refuse(
                        f"it reads `{name}` of the class `{name_of(cls)}`, which is an attribute of its metaclass: "
                        "assign it to the class itself"
                    )
                return

    def type_test(self, kind: str, cls: type, source: Any, value: Any, asked: list[Any], answer: bool) -> None:
        """Note the answer that the trace used for `isinstance` or `issubclass`; `asked`: classes with their sources."""
        self._tests.append(TypeTest(kind, cls, source, value, tuple(asked), answer))

    def ordered(self, source: Any) -> None:
        """Note a set whose order the trace used."""
        self._orders[source] = None

    def order_of_made(
        self, items: list[Any], constant: frozenset[Any] | None, *, at_once: bool = False
    ) -> list[Any] | None:
        """Return the order of a set that the method makes, None to keep it; `constant`: the same set as a code
        constant.

        Dynamo uses the order of insertion. A real set holds small numbers in ascending order, whatever its history; the
        order of other items depends on the set's history, and that of texts on the hash seed.
        """
        if constant is not None:
            self._constants.append(constant)
            return None
        size = 8
        while len(items) * 5 >= (size - 1) * 3:
            size *= 2
        if all(type(item) is int and 0 <= item < size for item in items):
            return sorted(items)
        if at_once:  # Python itself iterates over this one, so no other order can be tried
            self.refuse(CAUSE)
            return None
        self.made_orders += 1
        return arranged(items, self.arrangement, self.made_orders) if self.arrangement else None

    def folded(self, function: Any, source: Any) -> None:
        """Note a call without arguments that was replaced by its result."""
        self._folded_calls.append((function, source))

    def ran(self, function: Any, source: Any) -> None:
        """Note a function that ran as an argument of a folded builtin: the trace does not show why."""
        self._untraced_functions.append((function, source))

    @property
    def untraced(self) -> list[tuple[Any, Any]]:
        """Functions with their sources that ran without being traced."""
        return self._untraced_functions

    @property
    def calls(self) -> list[tuple[Any, Any]]:
        """Functions with their sources that were called without arguments."""
        return self._folded_calls

    def names(self, codes: Iterable[types.CodeType]) -> set[str]:
        """Return the names that a trace of some code may have looked up."""
        return self._names | _UNMENTIONED | {name for code in codes for name in _names_in(code)}

    def checks(
        self,
        names: FrameNames,
        walker: Walker,
        names_read: set[str],
        functions: dict[Access, types.FunctionType],
        written: set[str],
    ) -> list[Check]:
        """Return the noted facts as checks that hold now.

        `names_read` are the names that may have been looked up, `functions` are traced functions by their paths,
        `written` the attributes of classes that the frame writes: calls check these.
        """
        translator = FactChecks(self.method, names, walker)
        checks = [translator.order(source) for source in self._orders]
        checks += [translator.constant_order(constant, functions) for constant in self._constants]
        for (source, name), present in self._attributes.items():
            checks += translator.attribute(source, name, present)
        for source, name in self._made_attributes:
            checks += translator.made_attribute(source, name)
        checks += [translator.level(source, level) for source, level in self._levels]
        checks += [translator.own_key(source, key) for source, key in self._own_keys]
        checks += [translator.own_keys(source) for source in self._own_dictionaries]
        checks += [check for source in self._emptiness for check in translator.emptiness(source)]
        for test in self._tests:
            checks += translator.type_test(test, self._classes)
        checks.append(translator.classes(self._classes, names_read - written))
        return checks


def _names_in(code: types.CodeType) -> Iterable[str]:
    """Yield the names that some code may look up: those that it reads, and texts that it might pass on."""
    for code_object in code_objects(code):
        yield from code_object.co_names
        for constant in code_object.co_consts:
            for text in constant if isinstance(constant, tuple) else (constant,):
                if type(text) is str and len(text) < 256:
                    yield from (part for part in text.split(".") if part.isidentifier())
