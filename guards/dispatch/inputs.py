"""Check all tensor inputs of one compiled graph, and describe why a call fails the check."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import torch
from msgspec import Struct
from msgspec.structs import replace

from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput
from gearcache.guards.evidence.names import a_type
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES
from gearcache.guards.gears.expressions import holds

#: The found and the allowed state when an input requires grad.
GRADIENT_WORDS = ("a tensor that requires grad", "tensors without grad, or a call under no_grad")
#: The same for an inference tensor that the graph writes; eager mode raises there as well.
INFERENCE_WORDS = ("an inference tensor, which the method writes", "a normal tensor, or a call under inference_mode()")
#: The same for an inference tensor that no longer shows how it was made: torch has no way to write it in a graph.
_REPLACED_WORDS = (
    "made in inference mode and given another `.data` since, and the method writes it",
    "a tensor made outside of inference_mode()",
)


class Problem(Struct, frozen=True):
    """Why a tensor does not fit: the argument, its state, and what is allowed.

    `shape` is a size outside a gear. `read` is a difference of a tensor that the graph does not compute with: it needs
    another trace and is not an error.
    """

    argument: str
    value: str
    allowed: str
    kind: str
    #: Whether only sizes differ that the gear merely assumed.
    is_assumption: bool = False
    #: For `shape`: the dims that differ.
    dims: tuple[int, ...] = ()
    #: The input concerned, where it alone does not fit.
    stored: StoredInput | None = None


def find_problem(inputs: Sequence[StoredInput], gear: StoredGear, tensors: Sequence[torch.Tensor]) -> Problem | None:
    """Return the first difference between tensors and a gear; None when the graph may run on them.

    Kinds are checked before layouts: where the problem is a shape, all tensors are of the right kind. The text of an
    access path is made for a problem only.
    """
    for stored, tensor in zip(inputs, tensors, strict=True):
        if (problem := _properties(stored, tensor)) is not None:
            return replace(problem, stored=stored, kind=_kind(problem, stored))
    stored_by_id: dict[int, StoredInput] = {}
    rows = zip(inputs, gear.sizes, gear.strides, tensors, strict=True)
    for index, (stored, sizes, strides, tensor) in enumerate(rows):
        if (problem := _layout(stored, tensor, sizes, strides)) is not None:
            assumption = problem.kind == "shape" and _only_assumed(gear, tensors)
            return replace(problem, is_assumption=assumption, stored=stored, kind=_kind(problem, stored))
        if index in gear.written and tensor.is_inference() and not _in_inference_mode(gear):
            return Problem(stored.access.text, *INFERENCE_WORDS, "inference")
        if index in gear.written and not _counts_writes(tensor):
            return Problem(stored.access.text, *_REPLACED_WORDS, "inference")
        if (other := stored_by_id.get(id(tensor))) is not None:
            found = f"the same tensor as `{other.access.text}`"
            return Problem(stored.access.text, found, "a tensor of its own", "alias")
        stored_by_id[id(tensor)] = stored
    return None


def _counts_writes(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can be written in any mode.

    A tensor made in inference mode has no version counter, whatever its `.data` says.
    """
    try:
        return tensor.is_inference() or tensor._version >= 0
    except RuntimeError:
        return False


def _in_inference_mode(gear: StoredGear) -> bool:
    return gear.in_inference_mode or torch.is_inference_mode_enabled()


def _kind(problem: Problem, stored: StoredInput) -> str:
    return problem.kind if stored.computed or problem.kind in ("grad", "structure") else "read"


def _only_assumed(gear: StoredGear, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all sizes that differ from the gear's are of dims that it assumed."""
    assumed_dims = {tuple(dim) for dim in gear.assumed}
    for index, (sizes, tensor) in enumerate(zip(gear.sizes, tensors, strict=True)):
        if tensor.dim() != len(sizes):
            return False
        for dim, (expected, actual) in enumerate(zip(sizes, tensor.shape, strict=True)):
            if expected is not None and expected != actual and (index, dim) not in assumed_dims:
                return False
    return bool(assumed_dims)


def _properties(stored: StoredInput, tensor: object) -> Problem | None:
    if not isinstance(tensor, torch.Tensor):
        return Problem(stored.access.text, f"{a_type(tensor)}", "a tensor", "structure")
    if type(tensor) not in PLAIN_TYPES:
        return Problem(stored.access.text, f"{a_type(tensor)}", "an ordinary torch.Tensor", "type")
    if tensor.dtype != stored.dtype:
        return Problem(stored.access.text, f"of dtype {tensor.dtype}", f"dtype {stored.dtype}", "dtype")
    if tensor.device.type != stored.device:
        return Problem(stored.access.text, f"on device {tensor.device}", f"device {stored.device}", "device")
    if tensor.requires_grad and torch.is_grad_enabled() and not stored.is_weight:
        return Problem(stored.access.text, *GRADIENT_WORDS, "grad")
    return None


def _layout(
    stored: StoredInput, tensor: torch.Tensor, sizes: Sequence[int | None], strides: Sequence[int | None]
) -> Problem | None:
    if tensor.layout != torch.strided:
        return Problem(stored.access.text, f"of layout {tensor.layout}", "a dense tensor", "layout")
    if tensor.is_conj() or tensor.is_neg():  # the memory does not hold the values, but compiled code reads it
        return Problem(
            stored.access.text,
            "a lazy conjugate or negative",
            "an ordinary tensor (call .resolve_conj().resolve_neg())",
            "layout",
        )
    if tensor.dim() != len(sizes):
        return Problem(stored.access.text, f"of rank {tensor.dim()}", f"rank {len(sizes)}", "rank")
    pairs = enumerate(zip(sizes, tensor.shape, strict=True))
    differing = tuple(dim for dim, (expected, actual) in pairs if expected is not None and expected != actual)
    if differing:
        return Problem(
            stored.access.text, f"of shape {tuple(tensor.shape)}", f"shape {_shape(sizes)}", "shape", dims=differing
        )
    if any(
        expected is not None and expected != actual for expected, actual in zip(strides, tensor.stride(), strict=True)
    ):
        whole = torch.empty(tensor.shape, device="meta").stride()
        helps = all(expected is None or expected == actual for expected, actual in zip(strides, whole, strict=True))
        hint = " (call .contiguous() on it)" if helps else ""
        return Problem(
            stored.access.text, f"of strides {tensor.stride()}", f"strides {_shape(strides)}{hint}", "stride"
        )
    return None


def _shape(sizes: Sequence[int | None]) -> str:
    inner = ", ".join("*" if size is None else str(size) for size in sizes)
    return f"({inner},)" if len(sizes) == 1 else f"({inner})"


class Problems:
    """Why no loaded graph accepts a call; the most helpful problem is reported to the user."""

    #: Problems of a graph for the same kind of tensors precede those of a graph for other kinds.
    _ORDER = (
        "read",
        "inference",
        "grad",
        "alias",
        "rank",
        "stride",
        "shape",
        "number",
        "layout",
        "structure",
        "dtype",
        "device",
        "type",
    )

    def __init__(self, problems: Iterable[tuple[str, Problem]] = ()) -> None:
        """`problems`: one for each loaded graph that takes such arguments, with the text of its gear."""
        self._problems = tuple(problems)

    @property
    def gears(self) -> tuple[str, ...]:
        """The texts of the gears of those graphs."""
        return tuple(text for text, _ in self._problems)

    def decisive(self, gear: str | None = None) -> Problem | None:
        """Return the problem to report: of the call's own gear if that is loaded, and of the nearest graph."""
        own_problems = [problem for text, problem in self._problems if text == gear]
        problems = own_problems or [problem for _, problem in self._problems]
        if not problems:
            return None
        by_kind = {problem.kind: problem for problem in reversed(problems)}
        return next(by_kind[kind] for kind in self._ORDER if kind in by_kind)

    def nearest(self) -> Problem | None:
        """Return the problem to tell people: that of a number, as its graph takes the sizes, else the decisive one."""
        return next((problem for _, problem in self._problems if problem.kind == "number"), None) or self.decisive()

    def sentence(self) -> tuple[str, str, str]:
        """Return argument, found, allowed."""
        problem = self.decisive()
        if problem is None:
            return "?", "of a kind that the new trace does not take either", "the arguments of the first call"
        return problem.argument, problem.value, problem.allowed


def broken_condition(
    inputs: Sequence[StoredInput],
    gear: StoredGear,
    tensors: Sequence[torch.Tensor],
    numbers: Mapping[str, tuple[str, float]] = MappingProxyType({}),
) -> Problem | None:
    """Return the broken condition of a graph as a problem of shape, stride or number.

    `numbers`: the path of each number of the graph, as text, and its value.
    """
    measured = {name: (tensor, kind, dim) for name, tensor, kind, dim in (*gear.symbols, *gear.measures)}
    values = {name: getattr(tensors[tensor], kind)(dim) for name, (tensor, kind, dim) in measured.items()}
    texts = {name: f"{inputs[index].access.text}.{kind}({dim})" for name, (index, kind, dim) in measured.items()}
    values |= {name: value for name, (_, value) in numbers.items()}
    texts |= {name: text for name, (text, _) in numbers.items()}
    for text in gear.conditions:
        used_names = [name for name in values if re.search(rf"\b{name}\b", text)]
        if holds(text, {name: values[name] for name in used_names}):
            continue
        values_text = ", ".join(f"{texts[name]}={values[name]}" for name in used_names)
        allowed = re.sub(r"\b[sun]\d+\b", lambda match: texts.get(match[0], match[0]), text)
        number_names = [name for name in used_names if name in numbers]
        if number_names:
            return Problem(texts[number_names[0]], f"a number of values {values_text}", allowed, "number")
        tensor, kind, dim = measured[used_names[0]] if used_names else (0, "size", 0)
        # A stride that follows from the sizes is wrong; a free stride needs another trace, as a size does.
        tied_strides = {name for name, _, kind, _ in gear.measures if kind == "stride"}
        kind = "stride" if tied_strides.intersection(used_names) else "shape"
        tensor_input = inputs[tensor]
        return Problem(
            tensor_input.access.text, f"of sizes {values_text}", allowed, kind, dims=(dim,), stored=tensor_input
        )
    for tensor in gear.contiguous:
        if not tensors[tensor].is_contiguous():
            strides = tensors[tensor].stride()
            allowed = "a contiguous tensor (call .contiguous() on it)"
            return Problem(
                inputs[tensor].access.text, f"of strides {strides}", allowed, "stride", stored=inputs[tensor]
            )
    return None
