"""Convert a recorded gear graph to the form that torchair accepts: functional, decomposed, writes to inputs last.

GE has neither views nor in-place operators in the middle of a graph. Each write of a graph becomes one `copy_` into the
input at its end, which torchair maps to GE's reuse of the input's memory. A non-contiguous input reaches GE as a copy,
so its new value is returned instead, and the caller copies it back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from msgspec import Struct
from torch import fx

from gearcache.errors import CompileError
from gearcache.ge_cache.aten import decode_tensor, to_module
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.graphs.examples import symbolic_examples
from gearcache.ge_cache.npu.process_groups import groups_of
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import symbols as private_symbols

aten = torch.ops.aten


class FunctionalGraph(Struct, frozen=True):
    """A functional graph; placeholders are the sizes `owners`, the job's inputs, its numbers, then its attributes.

    Each owner is the input and the dim that a symbolic size is read from. The outputs are those of the job, then the
    new values of `copied_back`, inputs that the caller has to write. `written` are the placeholders that the graph
    itself writes, `groups` the process groups that it communicates in.
    """

    module: fx.GraphModule
    examples: list[Any]
    owners: list[list[int]]
    copied_back: list[int]
    written: list[int]
    groups: dict[str, list[int]]
    mode: Any
    symbolic: private_symbols.SymbolicInputs | None = None


def functional_graph(job: CompileJob, decompositions: Mapping[Any, Callable[..., Any]]) -> FunctionalGraph:
    """Trace a job's graph on fake tensors of its sizes; passes on errors of operators."""
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    constants = {name: decode_tensor(plain) for name, plain in job.graph["constants"].items()}
    recorded = to_module(job.graph, constants)
    examples, mode, symbolic = _examples(job)
    table = {**_TABLE, **decompositions}
    with mode, torch.no_grad(), _decomposed_attention(examples):
        if symbolic is not None:
            # `functionalize` decomposes composite operators in C++, at concrete sizes; Python keeps them symbolic.
            with private_fake.python_dispatcher():
                recorded = make_fx(recorded, decomposition_table=table, _allow_non_fake_inputs=True)(*examples)
        functional = functionalize(recorded, remove="mutations")
        module = make_fx(functional, decomposition_table=table, _allow_non_fake_inputs=True)(*examples)
    _drop_settled_assertions(module)
    _follow_current_device(module)
    copied_back = _return_strided_writes(module, examples)
    owners: list[list[int]] = []
    if symbolic is not None:
        owners, sizes = _take_sizes(module, job, symbolic)
        examples = [*sizes, *examples]
    for index, node in enumerate(module.graph.nodes):
        if node.op == "placeholder":
            # torchair names GE's inputs after the placeholders.
            node.name = node.target = f"arg{index}_1"
    _tuple_output(module)
    module.graph.eliminate_dead_code()
    module.recompile()
    return FunctionalGraph(
        module, examples, owners, copied_back, _written_inputs(module), groups_of(module.graph), mode, symbolic
    )


def _examples(job: CompileJob) -> tuple[list[Any], Any, private_symbols.SymbolicInputs | None]:
    symbols = job.graph.get("symbols")
    symbolic: private_symbols.SymbolicInputs | None = None
    fakes: list[torch.Tensor] = []
    if symbols:
        fakes, symbolic = symbolic_examples(symbols, job.inputs)
    mode = symbolic.mode if symbolic is not None else private_fake.fake_mode()
    specs = list(job.attributes.values()) if symbolic is not None else [*job.inputs, *job.attributes.values()]
    with mode:
        tensors = [
            torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device=spec.device) for spec in specs
        ]
    numbers = list(symbolic.numbers.values()) if symbolic is not None else []
    return [*fakes, *numbers, *tensors], mode, symbolic


@contextlib.contextmanager
def _decomposed_attention(examples: list[Any]) -> Iterator[None]:
    """Decompose attention of CPU tensors into simpler operators; a device makes its own choice."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if any(item.device.type != "cpu" for item in examples if isinstance(item, torch.Tensor)):
        yield
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield


def _drop_settled_assertions(module: fx.GraphModule) -> None:
    """Remove assertions on sizes (`mark_unbacked`): no converter supports them.

    An assertion on symbolic sizes becomes an assumption: `bool` makes a guard of it, which every call checks.
    """
    for node in list(module.graph.nodes):
        if node.target is aten._assert_scalar.default:
            condition = node.args[0].meta["val"] if isinstance(node.args[0], fx.Node) else node.args[0]
            if isinstance(condition, (bool, torch.SymBool)) and bool(condition):
                module.graph.erase_node(node)


def _follow_current_device(module: fx.GraphModule) -> None:
    """Remove device indices: an artifact made on `npu:0` runs on the current device of its process."""
    for node in module.graph.nodes:
        device = node.kwargs.get("device")
        if isinstance(device, torch.device) and device.index is not None:
            node.kwargs = {**node.kwargs, "device": torch.device(device.type)}


def _return_strided_writes(module: fx.GraphModule, examples: list[torch.Tensor]) -> list[int]:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    copied: list[int] = []
    values = list(output.args[0])
    for node in list(module.graph.nodes):
        if node.target is aten.copy_.default and node.args[0] in placeholders:
            index = placeholders.index(node.args[0])
            if not examples[index].is_contiguous():
                copied.append(index)
                values.append(node.args[1])
                node.replace_all_uses_with(node.args[1])
                module.graph.erase_node(node)
    output.args = (values,)
    return copied


def _written_inputs(module: fx.GraphModule) -> list[int]:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return [
        index
        for index, placeholder in enumerate(placeholders)
        if any(user.target is aten.copy_.default and user.args[0] is placeholder for user in placeholder.users)
    ]


def _take_sizes(
    module: fx.GraphModule, job: CompileJob, symbolic: private_symbols.SymbolicInputs
) -> tuple[list[list[int]], list[Any]]:
    """Make each symbolic size an input of the graph, the form that torchair expects from AOT autograd."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    owners, sizes = [], []
    for name, size in symbolic.sizes.items():
        rows = job.graph["symbols"]["sizes"]
        places = [
            (index, dim)
            for index, input_sizes in enumerate(rows)
            for dim, item in enumerate(input_sizes)
            if isinstance(item, dict) and item["expression"] == name
        ]
        if not places:
            raise CompileError(job.method, job.gear, "an input has strides of its own; pass it contiguous")
        index, dim = places[0]
        with module.graph.inserting_before(placeholders[0]):
            size_input = module.graph.placeholder(f"size_{name}")
        size_input.meta["val"] = size
        owners.append([index, dim])
        sizes.append(size)
        for node in list(module.graph.nodes):
            value = node.meta.get("val")
            is_size = node.target is aten.sym_size.int and isinstance(value, torch.SymInt)
            if is_size and value.node.expr == size.node.expr:
                node.replace_all_uses_with(size_input)
                module.graph.erase_node(node)
    return owners, sizes


def _tuple_output(module: fx.GraphModule) -> None:
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    output.args = (tuple(output.args[0]),)


# -- operators that torchair has no converter for (torch_npu 2.13.0), in terms of ones that it has ------------


def _along(index: torch.Tensor, dim: int, like: torch.Tensor) -> torch.Tensor:
    shape = [1] * like.dim()
    shape[dim] = -1
    return index.reshape(shape).expand(like.shape)


def _index_copy(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    if self.dim() == 0:
        return source.reshape(())
    dim = dim % self.dim()
    return aten.scatter.src(self, dim, _along(index, dim, source), source)  # type: ignore[no-any-return]


def _index_put(
    self: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """One index tensor of any rank, or several at the front: both are a scatter along one (flattened) dim."""
    present = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in present):
        return NotImplemented  # type: ignore[no-any-return]
    dims = [dim for dim, _ in present]
    if dims != list(range(dims[0], dims[0] + len(dims))):
        return NotImplemented  # type: ignore[no-any-return]
    first_dim, last_dim = dims[0], dims[-1]
    broadcast = aten.broadcast_tensors.default([index for _, index in present])
    flat = torch.zeros_like(broadcast[0])
    for dim, index in zip(dims, broadcast, strict=True):
        size = self.shape[dim]
        flat = flat * size + torch.where(index < 0, index + size, index)
    index_shape = list(broadcast[0].shape)
    target = self.reshape([*self.shape[:first_dim], -1, *self.shape[last_dim + 1 :]])
    value_shape = [*self.shape[:first_dim], *index_shape, *self.shape[last_dim + 1 :]]
    source = (
        values.to(self.dtype).expand(value_shape).reshape([*self.shape[:first_dim], -1, *self.shape[last_dim + 1 :]])
    )
    spread = _along(flat.reshape(-1), first_dim, source)
    scatter = aten.scatter_add.default if accumulate else aten.scatter.src
    return scatter(target, first_dim, spread, source).reshape(self.shape)  # type: ignore[no-any-return]


def _amax(self: torch.Tensor, dim: Any = (), keepdim: bool = False) -> torch.Tensor:
    dims = [dim] if isinstance(dim, int) else list(dim)
    for each in sorted((item % self.dim() for item in dims or range(self.dim())), reverse=True):
        self = aten.max.dim(self, each, keepdim)[0]
    return self


_TABLE: dict[Any, Callable[..., Any]] = {
    aten.index_copy.default: _index_copy,
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _index_put,
    aten.amax.default: _amax,
}
