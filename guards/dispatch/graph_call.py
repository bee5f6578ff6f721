"""The call of one compiled graph, as generated Python source: check the inputs, run, rebuild the results."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gearcache.errors import GraphError
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.generated import define
from gearcache.guards.dispatch.results import result_lines
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.dispatch.tensors.native import tensor_check
from gearcache.guards.dispatch.tensors.tensor_checks import TensorChecks
from gearcache.guards.gears.expressions import NAMESPACE, NO_VALUE, checked_expression

if TYPE_CHECKING:
    from gearcache.guards.dispatch.tensors.memory import BoundSpans

#: Of distinct shapes the first ones are counted: a client may send any number.
MOST_SHAPES = 10_000
#: How many sets of addresses a graph remembers as free of overlap.
_MAX_PLACES = 256
Runner = Callable[[list[torch.Tensor]], list[torch.Tensor]]


class Mismatch(Exception):
    """The inputs do not fit the chosen graph; raised before anything ran."""


class GraphCall:
    """One loaded gear of one variant. `function` takes the arguments of the frame: tensors, then numbers."""

    def __init__(
        self,
        variant: StoredVariant,
        gear: StoredGear,
        run: Runner,
        attributes: Mapping[str, torch.Tensor],
        scope: Scope,
        *,
        validate: bool,
        name: str = "",
    ) -> None:
        self.variant = variant
        self.gear = gear
        self._run = run
        self._attributes = attributes
        self._scope = scope
        self._validate = validate
        self._name = name
        self._is_native = bool(getattr(run, "is_native", False))
        #: Whether a weight may be read in its old state after an input that shares its memory was written.
        self._reads_weights_late = self._is_native or bool(getattr(run, "writes_copies", False))
        self._bound_spans: BoundSpans | None = None
        self._checks = TensorChecks(gear, {index for index, stored in enumerate(variant.inputs) if stored.is_weight})
        #: Counts the runs of the graph.
        self.counter = itertools.count()
        #: With `count_shapes`: sizes of all inputs -> calls.
        self.shapes: dict[tuple[tuple[int, ...], ...], int] = {}
        #: Replaced when another check is added; the frame reaches it through `function`.
        self.function: Callable[..., Any] = self._first_call if validate else self._build()

    @property
    def attributes(self) -> Mapping[str, torch.Tensor]:
        """The weights that the graph is bound to, by name."""
        return self._attributes

    def resized(self, gear: StoredGear, run: Runner) -> GraphCall:
        """Return a call of the same variant and weights at other sizes."""
        return GraphCall(
            self.variant, gear, run, self._attributes, self._scope, validate=self._validate, name=self._name
        )

    def count_shapes(self) -> None:
        """Count the sizes of future calls, which makes each of them slower (dynamic graphs only)."""
        run, counts, count = getattr(self._run, "run", self._run), self.shapes, len(self.variant.inputs)

        def counted(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            sizes = tuple(tuple(tensor.shape) for tensor in inputs[:count])
            if sizes in counts or len(counts) < MOST_SHAPES:
                counts[sizes] = counts.get(sizes, 0) + 1
            return run(inputs)

        self._run = counted
        if not self._validate:
            self.function = self._build()

    @property
    def runner(self) -> Runner:
        """The function that runs the graph without any check, and tells whether it is native."""
        return self._run

    @property
    def is_ready(self) -> bool:
        """Whether a check for the tensors of this process exists."""
        return bool(self._checks)

    def admits(self, tensors: tuple[torch.Tensor, ...]) -> bool:
        """Return whether a check for these kinds of tensors already exists."""
        return self._checks.admit(tensors)

    def accept(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Admit tensors like these (already found to fit): another kind of ordinary tensor, or dispatch keys."""
        if self._checks.add(tensors):
            self.function = self._build()

    def _first_call(self, *arguments: Any) -> Any:
        raise Mismatch

    def _build(self) -> Callable[..., Any]:
        names = [f"t{index}" for index in range(len(self.variant.inputs))]
        parameters = [name for name, stored in zip(names, self.variant.inputs, strict=True) if stored.in_frame]
        parameters += [checked_expression(name) for name, _ in self.variant.numbers]
        namespace: dict[str, Any] = {
            "run": getattr(self._run, "run", self._run),
            "tick": self.counter.__next__,
            "Mismatch": Mismatch,
            "NO_VALUE": NO_VALUE,
            **NAMESPACE,
        }
        lines = []
        for index, stored in enumerate(self.variant.inputs):
            if not stored.in_frame:
                namespace[f"read{index}"] = _reader(stored.access, self._scope)
                lines.append(f"t{index} = read{index}()")
        if self._checks and not names:
            # No input shows a tracer or transform around the call, but a tensor of our own does.
            probe = torch.empty(0)
            namespace["probe"], namespace["is_plain"] = probe, tensor_check([probe], [[0]], [[1]])
            lines.append("if not is_plain(probe): raise Mismatch")
        elif self._checks:
            lines.append(f"if not ({self._checks.source(names, namespace)}): raise Mismatch")
        lines += _measures(self.gear.symbols)
        lines += self._condition_lines()
        if self._checks:
            lines += self._overlap_lines(names, namespace)
        ints = [checked_expression(name) for name, _ in self.variant.numbers if name.startswith("n")]
        floats = [name for name, _ in self.variant.numbers if name.startswith("f")]
        if ints and self._is_native:  # compiled code reads a number from a tensor
            from gearcache.guards.dispatch.tensors.number_tensors import NUMBER_TENSORS

            namespace["tensor_of"] = NUMBER_TENSORS
            conversions = "; ".join(f"tensor_{name} = tensor_of[{name}]" for name in ints)
            lines += [f"try: {conversions}", "except OverflowError: raise Mismatch"]
            ints = [f"tensor_{name}" for name in ints]
        floats += [checked_expression(text) for _, text in self.variant.computed]
        if floats:
            from gearcache.guards.dispatch.tensors.number_tensors import float_tensor

            namespace["tensor_of_float"] = float_tensor
            floats = [f"tensor_of_float({text})" for text in floats] if self._is_native else floats
        if self.gear.written:  # as operators do: autograd looks for writes to what it has kept
            namespace["note_writes"] = torch.autograd.graph.increment_version
            lines.append(f"note_writes(({', '.join(names[index] for index in self.gear.written)},))")
        lines.append("tick()")
        call = f"run([{', '.join([*names, *floats, *ints])}])"
        results = result_lines(self.variant, self.gear, self._attributes, call, namespace)
        if self._is_native:  # its exceptions contain pages of C++
            namespace["failed"] = self._failed
            results = ["try:", *(f"    {line}" for line in results), "except RuntimeError as error: failed(error)"]
        lines += results
        source = f"def graph({', '.join(parameters)}):\n    " + "\n    ".join(lines) + "\n"
        return define(source, "graph", namespace, "graph")

    def _failed(self, error: RuntimeError) -> None:
        if type(error) is not RuntimeError:  # of a padded call, or of a signal handler of the program
            raise error
        raise GraphError(self._name, self.gear.text, str(error).partition("\n")[0]) from error

    def overlap(self, tensors: Sequence[torch.Tensor]) -> tuple[str, str] | None:
        """Return the names of a written input and of a tensor that shares its memory; None where there is none.

        Compiled code may read a weight after an input that shares its memory was written, or before. Padding writes to
        a copy of the input. The `eager` backend does neither.
        """
        inputs, written = self.variant.inputs, self.gear.written
        if not written:
            return None
        from gearcache.guards.dispatch.tensors.memory import BoundSpans, find_overlap  # most graphs do not need it

        if (pair := find_overlap(tensors, written)) is not None:
            return inputs[pair[0]].access.text, inputs[pair[1]].access.text
        if self._reads_weights_late:
            self._bound_spans = self._bound_spans or BoundSpans(self._attributes)
            if (weight_pair := self._bound_spans.find_overlap(tensors, written)) is not None:
                return inputs[weight_pair[0]].access.text, self.variant.attributes[weight_pair[1]].text
        return None

    def _overlap_lines(self, names: list[str], namespace: dict[str, Any]) -> list[str]:
        """Check that no written input shares memory with others: at once for addresses that were seen before."""
        if not self.gear.written or (len(names) < 2 and not (self._reads_weights_late and self._attributes)):
            return []
        free_places: set[tuple[int, ...]] = set()

        def is_apart(place: tuple[int, ...], tensors: tuple[torch.Tensor, ...]) -> bool:
            if self.overlap(tensors) is not None:
                return False
            if len(free_places) >= _MAX_PLACES:
                free_places.clear()
            free_places.add(place)
            return True

        namespace["seen"], namespace["is_apart"] = free_places, is_apart
        place = [f"{name}.data_ptr()" for name in names] + [name for name, *_ in self.gear.symbols]
        tensors = f"({', '.join(names)},)"
        return [
            f"place = ({', '.join(place)},)",
            f"if place not in seen and not is_apart(place, {tensors}): raise Mismatch",
        ]

    def _condition_lines(self) -> list[str]:
        """Check the conditions of a dynamic graph that the tensor check cannot express: how sizes and strides depend on
        each other.

        Where tensors are not checked, only conditions on numbers are.
        """
        gear, numbers = self.gear, [name for name, _ in self.variant.numbers]
        conditions = gear.conditions
        if not self._checks:
            conditions = [text for text in conditions if any(re.search(rf"\b{name}\b", text) for name in numbers)]
        if not conditions and not self._checks:
            return []
        lines = _measures(gear.measures)
        tests = [f"({checked_expression(text)})" for text in conditions]
        if self._checks:
            tests += [f"t{int(tensor)}.is_contiguous()" for tensor in gear.contiguous]
        if not tests:
            return []
        lines += ["try:", f"    if not ({' and '.join(tests)}): raise Mismatch"]
        return [*lines, "except NO_VALUE: raise Mismatch"]


def _measures(rows: list[list[Any]]) -> list[str]:
    """Return statements that read sizes and strides."""
    return [
        f"{checked_expression(name)} = t{int(tensor)}.{'stride' if kind == 'stride' else 'size'}({int(dim)})"
        for name, tensor, kind, dim in rows
    ]


def _reader(access: Any, scope: Scope) -> Callable[[], Any]:
    """Return a function that reads one access path now (a buffer that the graph writes, or an int)."""

    def read() -> Any:
        return access.resolve(scope)

    return read
