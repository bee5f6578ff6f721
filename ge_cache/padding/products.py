"""Padding rules of products of tensors, see `ge_cache.padding.rows`.

A sum may run over filling where one of the factors is 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gearcache.ge_cache.padding.extents import ONE, Dim, Extent, broadcast, has_padding
from gearcache.ge_cache.padding.fills import doubtful
from gearcache.ge_cache.padding.step import Dependent, PaddingRules, Step

RULES = PaddingRules()
rule = RULES.of


def _product(step: Step, left: Extent, right: Extent) -> Extent:
    """Return a matrix product of tensors of at least two dims."""
    is_masked = left.fills.get(len(left.dims) - 1) == 0 or right.fills.get(len(right.dims) - 2) == 0
    if not is_masked or left.dims[-1] != right.dims[-2]:
        step.require_unpadded("sums over", left.dims[-1], right.dims[-2])
    batches = broadcast(
        [left.dims[:-2], right.dims[:-2]],
        [[0 if dim else 1 for dim in factor.dims[:-2]] for factor in (left, right)],
    )
    if batches is None:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    sums_filling = has_padding(left.dims[-1])
    return Extent((*batches, left.dims[-2], right.dims[-1]), is_doubtful=sums_filling and doubtful(step))


@rule("mm", "bmm", "matmul")
def product(step: Step) -> Extent:
    """A matrix product; the summed dim must have no filling, unless one factor is 0 there."""
    names = ("self", "other") if "other" in step.given else ("self", "mat2")
    left, right = (step.extent(name) for name in names)
    rows, columns = len(left.dims) == 1, len(right.dims) == 1
    left = left.with_dims([ONE, *left.dims], {0: 1}) if rows else left
    right = right.with_dims([*right.dims, ONE], {0: 0}) if columns else right
    extent = _product(step, left, right)
    dims = list(extent.dims)
    if columns:
        dims.pop()
    if rows:
        dims.pop(-1 if columns else -2)
    return replace(extent, dims=tuple(dims))


@rule("addmm", "baddbmm")
def sum_and_product(step: Step) -> Extent:
    """A matrix product with something added."""
    left_name, right_name = ("mat1", "mat2") if "mat1" in step.given else ("batch1", "batch2")
    extent = _product(step, step.extent(left_name), step.extent(right_name))
    dims = extent.dims
    added = step.extent("self")
    joined = broadcast(
        [dims, added.dims], [[0 if dim else 1 for dim in tensor_dims] for tensor_dims in (dims, added.dims)]
    )
    if joined != dims:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    return extent


@rule("linear")
def linear(step: Step) -> Extent:
    """Neither weights nor the last dim may have filling."""
    source, weight = step.extent("input"), step.extent("weight")
    step.require_unpadded("sums over", source.dims[-1], *weight.dims)
    if isinstance(bias := step.value("bias"), Extent):
        step.require_unpadded("adds", *bias.dims)
    dims = (*source.dims[:-1], *step.fresh().dims[len(source.dims) - 1 :])
    # Every value of a row is a sum over the whole row.
    return Extent(dims, origin=(step.given["input"],) if source.is_doubtful else ())


@rule("einsum")
def einsum(step: Step) -> Extent:
    """Dims of one label have the same positions; a summed one may have filling under the condition of a product."""
    tensors = step.value("tensors")
    labels, output = _labels(step.value("equation"), [len(item.dims) for item in tensors])
    label_dims: dict[str, Dim] = {}
    masked: set[str] = set()
    for item, operand_labels in zip(tensors, labels, strict=True):
        for at, (label, dim) in enumerate(zip(operand_labels, item.dims, strict=True)):
            label_dim = label_dims.setdefault(label, dim)
            if (ONE not in (label_dim, dim) and label_dim != dim) or (
                has_padding(dim) and operand_labels.count(label) > 1
            ):
                raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
            label_dims[label] = label_dim if dim == ONE else dim
            masked |= {label} if item.fills.get(at) == 0 else set()
    summed = [label for label in label_dims if label not in output and has_padding(label_dims[label])]
    step.require_unpadded("sums over", *(label_dims[label] for label in summed if label not in masked))
    # With one operand the result may be a view, which the schema does not declare.
    is_fresh = len(tensors) > 1
    return Extent(
        tuple(label_dims[label] for label in output), is_writable=is_fresh, is_doubtful=bool(summed) and doubtful(step)
    )


def _labels(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Return the labels of the dims of each operand and of the result; those after `...` are counted from the end."""
    left, _, right = equation.replace(" ", "").partition("->")
    rows = left.split(",")
    wide = [
        rank - len(operand.replace("...", "")) if "..." in operand else 0
        for operand, rank in zip(rows, ranks, strict=True)
    ]

    def dim_labels(text: str, count: int) -> list[str]:
        leading, dots, trailing = text.partition("...")
        return [*leading, *(f"-{number}" for number in range(count if dots else 0, 0, -1)), *trailing]

    operands = [dim_labels(operand, count) for operand, count in zip(rows, wide, strict=True)]
    if "->" not in equation:
        right = "..." + "".join(sorted(label for label in set(left) - {",", "."} if left.count(label) == 1))
    return operands, dim_labels(right, max(wide))
