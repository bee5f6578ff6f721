"""Numbers: ints that a trace keeps symbolic, so that one graph serves all their values.

A number is an input of the graph, as a tensor is: the frame passes it after the tensors. Slices, `arange(n)`, sizes and
operands may depend on it; conditions that the trace evaluated on it (`n > 3`, `n <= x.size(1)`) are checked on every
call, see `ge_cache.capture.number_checks`. A number whose value the trace needs (`range(n)`, an index of a list) is a
constant of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from msgspec import Struct, field
from msgspec.structs import replace
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import FrameNames, UnknownSourceClass, access_of
from gearcache.ge_cache.capture.written import Written
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.access import FAULTS, Access, Scope
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.constants import NotConstant
from gearcache.guards.gears.spec import RangeAxis
from gearcache.guards.keys import unpacked

_ITEMS = ("item", "list_item", "dict_item", "key_item", "dict_key_item")
_PACKED = ("key_item", "dict_key_item")


class NumberRefused(CaptureError):
    """Some ints of a trace cannot be numbers: `symbols` has the known ones, empty where any may be the cause.

    `places` has their paths, if there is no capture that tells them.
    """

    def __init__(
        self, method: str, cause: str, symbols: Iterable[Any] = (), places: Iterable[Access] = frozenset()
    ) -> None:
        super().__init__(method, cause)
        self.symbols = frozenset(symbols)
        self.places = frozenset(places)

    def __reduce__(self) -> Any:
        return CaptureError, (self.method, self.cause)


class NumberChoice(Struct, frozen=True):
    """Which ints of a call should be numbers, if their trace allows it."""

    #: All ints among the arguments.
    arguments: bool = False
    #: Ints at these paths: calls had several values of them, or the frame writes them.
    changing: frozenset[Access] = frozenset()
    #: Ints at these paths stay constants: the user asked for that, or an earlier trace failed otherwise.
    constants: frozenset[Access] = frozenset()
    #: Paths of further constants, as patterns.
    declared: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.arguments or bool(self.changing - self.constants)

    def with_changing(self, places: Iterable[Access]) -> NumberChoice:
        """Return the choice with further paths."""
        return replace(self, changing=self.changing | frozenset(places))

    def with_constants(self, places: Iterable[Access]) -> NumberChoice:
        """Return the choice without some paths."""
        return replace(self, constants=self.constants | frozenset(places))


NO_NUMBERS = NumberChoice()


class WantedNumbers:
    """Decides for a trace whether an int becomes a number, and records whether any did."""

    def __init__(self, choice: NumberChoice) -> None:
        self._choice = choice
        self._scope: Scope | None = None
        self._instance = ""
        self._changing: set[Access] = set()
        self._constants: set[Access] = set()
        #: Whether an int became a number.
        self.are_given = False

    def begin(self, scope: Scope, instance: str) -> None:
        """Set the names that the frame of the trace sees, and that of the method's instance."""
        self._scope, self._instance = scope, instance
        self._changing = {_place(access, scope) for access in self._choice.changing}
        self._constants = {_place(access, scope) for access in self._choice.constants}

    def __bool__(self) -> bool:
        """Whether there may be numbers."""
        return bool(self._choice)

    def place(self, source: Any) -> Access | None:
        """Return the path of an int; None where no choice can name it."""
        if self._scope is None:
            return None
        try:
            access = access_of(source, FrameNames({}, {}, tuple(self._scope.closure)))
        except (UnknownSourceClass, NotConstant, NotImplementedError):
            return None
        return _place(access, self._scope) if access.root[0] in ("argument", "closure", "global") else None

    def wants(self, source: Any, value: int) -> bool:
        """Return whether an int becomes a number; `source` is Dynamo's."""
        if not self._choice or not -(2**63) <= value < 2**63:
            return False
        place = self.place(source)
        if place is None:
            return False
        kind, name = place.root
        if place in self._constants or any(RangeAxis(path, 0, 1).matches(place.text) for path in self._choice.declared):
            return False
        is_argument = kind == "argument" and name != self._instance
        is_number = place in self._changing or (self._choice.arguments and is_argument)
        self.are_given |= is_number
        return is_number


def _place(access: Access, scope: Scope) -> Access:
    """Return a path with one kind of step for items: a trace and a stored check may spell a key differently."""
    steps: list[tuple[str, Any]] = []
    value: Any = None
    try:
        value = access.resolve_root(scope)
        for index, (kind, argument) in enumerate(access.steps):
            if kind == "nth_value":
                kind, argument = "item", list(value)[argument]
            elif kind in _PACKED:
                kind, argument = "item", unpacked(argument)
            elif kind in _ITEMS:
                kind = "item"
            if kind == "item" and isinstance(value, tuple) and (names := getattr(type(value), "_fields", None)):
                kind, argument = "attr", names[argument]
            steps.append((kind, argument))
            value = Access(access.root, access.steps[: index + 1]).resolve(scope)
    except FAULTS:
        return access
    return Access(access.root, tuple(steps))


class Numbers(Struct):
    """The ints of one capture that were chosen as numbers."""

    #: Symbol -> Dynamo's source, of the numbers that stayed symbolic.
    symbols: dict[Any, Any] = field(default_factory=dict)
    #: Symbol -> name in stored expressions.
    names: dict[Any, str] = field(default_factory=dict)
    #: The symbols that the frame passes, in order, with their placeholders.
    passed: list[Any] = field(default_factory=list)
    nodes: list[fx.Node] = field(default_factory=list)
    #: Assumptions about the numbers that call checks compare.
    checked: set[Any] = field(default_factory=set)
    #: Sources of ints whose value the trace needed, with the value.
    fixed: list[tuple[Any, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.symbols)


def take_numbers(graph: fx.Graph, shape_env: Any) -> Numbers:
    """Return the numbers of a captured graph; moves their placeholders to the end, and removes those of fixed ones."""
    numbers = Numbers()
    for symbol, source in private_symbols.number_sources(shape_env):
        value = private_symbols.fixed_value(shape_env, symbol)
        if value is not None:
            numbers.fixed.append((source, value))
        else:
            numbers.symbols[symbol] = source
            numbers.names[symbol] = f"n{len(numbers.names)}"
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in placeholders:
        symbol = _symbol_of(node)
        if symbol in numbers.symbols:
            numbers.passed.append(symbol)
            numbers.nodes.append(node)
        elif symbol is not None and (value := private_symbols.fixed_value(shape_env, symbol)) is not None:
            _put(node, value)
            graph.erase_node(node)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    last = placeholders[-1] if placeholders else None
    for node in numbers.nodes:  # in the order of `passed`
        if last is not None and node is not last:
            last.append(node)
        last = node
    return numbers


def name_by_passed(numbers: Numbers, shape_env: Any) -> None:
    """Rename numbers that equal a number passed by the frame to that one: a graph knows no others."""
    for symbol in numbers.symbols:
        if symbol not in numbers.passed:
            equal = (other for other in numbers.passed if shape_env.replace(other) == shape_env.replace(symbol))
            numbers.names[symbol] = next((numbers.names[other] for other in equal), numbers.names[symbol])


def _symbol_of(node: fx.Node) -> Any:
    """Return the symbol of a placeholder for an int; None for any other."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.SymInt) or not private_symbols.is_number_source(node.meta["grapharg"].source):
        return None
    return value.node._expr if value.node._expr.is_Symbol else value.node.expr


def _put(node: fx.Node, value: int) -> None:
    """Replace a node by an int in all its uses."""
    for user in list(node.users):
        user.args = fx.node.map_arg(user.args, lambda used: value if used is node else used)
        user.kwargs = fx.node.map_arg(user.kwargs, lambda used: value if used is node else used)


def written_ints(checks: list[Check], written: Written) -> list[Access]:
    """Return the paths of ints that the trace fixed and the frame writes (`self.count += 1`)."""
    return [
        check.access
        for check in checks
        if check.kind == "constant" and type(check.expected) is int and written.leads_to(check.access)
    ]


def check_takes(graph: fx.Graph, method: str) -> None:
    """Raise `CaptureError` where an operator of a captured graph takes a number, or a value computed from one."""
    computed: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder" and isinstance(value, torch.SymInt):
            computed.add(node)
        elif computed.intersection(node.all_input_nodes) and node.op != "output":
            if not isinstance(value, (torch.SymInt, torch.SymBool)):
                raise NumberRefused(method, f"`{node.target}` takes a number")
            computed.add(node)
