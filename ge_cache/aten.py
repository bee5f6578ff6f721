"""ATen graphs as plain data: the `eager` backend stores them, and compile workers receive them.

The form is a dict of lists, strings and numbers (no code): nodes in order, each with a target that is looked up in
`torch.ops` or in a short list of functions. `to_python` turns it into a function, `to_module` into an FX graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from keyword import iskeyword
from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.dispatch.check_code import checked_name
from gearcache.guards.dispatch.generated import define
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.expressions import MATH

Plain = Any

#: Functions besides `torch.ops` that a recorded graph may call.
_FUNCTIONS: dict[str, Callable[..., Any]] = (
    {
        f"operator.{name}": getattr(operator, name)
        for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg", "abs", "truediv", "pow")
    }
    | {f"operator.{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_")}
    | {
        f"torch.{name}": getattr(torch, name)
        for name in ("sym_max", "sym_min", "sym_not", "sym_float", "sym_ite", "sym_int", "sym_sum")
        if hasattr(torch, name)
    }
    | {f"torch._sym_{name}": getattr(torch, f"_sym_{name}") for name in MATH if hasattr(torch, f"_sym_{name}")}
    | {f"math.{name}": getattr(math, name) for name in ("trunc", "ceil", "floor")}
    | {"builtins.round": round}
)
_FUNCTION_NAMES = {id(function): name for name, function in _FUNCTIONS.items()}
_TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


def encode_graph(method: str, module: torch.fx.GraphModule) -> Plain:
    """Return the plain form; `CaptureError` names an operation without one."""
    numbers: dict[torch.fx.Node, int] = {}
    nodes: list[Plain] = []
    constants: dict[str, Plain] = {}
    outputs: Plain = []
    for node in module.graph.nodes:
        if node.op == "output":
            outputs = _encode(method, node.args[0], numbers)
            continue
        numbers[node] = len(numbers)
        if node.op == "placeholder":
            nodes.append(["input"])
        elif node.op == "get_attr":
            value = getattr(module, str(node.target))
            if not isinstance(value, torch.Tensor):
                users = ", ".join(dict.fromkeys(f"`{user.target}`" for user in node.users))
                cause = f"its graph holds a graph inside a graph, for {users}, which cannot be stored"
                raise CaptureError(method, f"{cause}: branch or repeat outside the method, or use plain operations")
            constants[str(node.target)] = encode_tensor(value)
            nodes.append(["constant", str(node.target)])
        else:
            target = _target_name(method, node.target)
            nodes.append(
                [
                    "call",
                    target,
                    _encode(method, list(node.args), numbers),
                    _encode(method, dict(node.kwargs), numbers),
                ]
            )
    return {"nodes": nodes, "constants": constants, "outputs": outputs}


def _target_name(method: str, target: Any) -> str:
    if isinstance(target, private_core.OpOverload):
        namespace, _, name = target._schema.name.partition("::")
        return f"{namespace}::{name}.{target._overloadname}"
    function_name = _FUNCTION_NAMES.get(id(target))
    if function_name is None:
        raise CaptureError(method, f"its graph calls `{target}`, which cannot be stored")
    return function_name


def _encode(method: str, value: Any, numbers: dict[torch.fx.Node, int]) -> Plain:
    if value is None or (isinstance(value, (bool, int, float, str)) and type(value) in (bool, int, float, str)):
        return value
    if isinstance(value, torch.fx.Node):
        return {"node": numbers[value]}
    if isinstance(value, (list, tuple)):
        return [_encode(method, item, numbers) for item in value]
    if isinstance(value, dict):
        return {"dict": [[key, _encode(method, item, numbers)] for key, item in value.items()]}
    if isinstance(value, _TORCH_CONSTANTS):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, slice):
        return {"slice": [_encode(method, item, numbers) for item in (value.start, value.stop, value.step)]}
    raise CaptureError(method, f"its graph holds {a_type(value)}, which cannot be stored")


class MissingOperator(LookupError):
    """A stored name of an operator that this process does not have."""


def resolve_target(name: str) -> Callable[..., Any]:
    """Return the operator of a stored name; `MissingOperator` when this process lacks it."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    namespace, _, qualified_name = name.partition("::")
    packet, _, overload = qualified_name.rpartition(".")
    try:
        operator_overload = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError as error:
        raise MissingOperator(f"operator {name} does not exist in torch {torch.__version__}") from error
    return operator_overload  # type: ignore[no-any-return]


def encode_tensor(tensor: torch.Tensor) -> Plain:
    """Return dtype, sizes and bytes of a small constant tensor (any strides; stored contiguous)."""
    data = tensor.detach().cpu().contiguous()
    raw = bytes(data.reshape(-1).view(torch.uint8).numpy()) if data.numel() else b""
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), str(tensor.device.type), raw]


def decode_tensor(plain: Plain, device: torch.device | None = None) -> torch.Tensor:
    """Inverse of `encode_tensor`."""
    dtype, sizes, kind, raw = plain
    torch_dtype = getattr(torch, dtype)
    if not raw:
        return torch.empty(sizes, dtype=torch_dtype, device=device or kind)
    tensor = torch.frombuffer(bytearray(raw), dtype=torch_dtype).reshape(sizes)
    return tensor.to(device or kind)


class _Writer:
    """Writes one stored graph as Python source; everything but numbers and names is passed through `namespace`."""

    def __init__(self, graph: Plain) -> None:
        self.namespace: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._graph = graph

    def bind(self, prefix: str, key: str, value: Any) -> str:
        if key not in self._names:
            self._names[key] = f"{prefix}{len(self._names)}"
            self.namespace[self._names[key]] = value
        return self._names[key]

    def value(self, plain: Plain) -> str:
        if isinstance(plain, list):
            return f"[{', '.join(self.value(item) for item in plain)}]"
        if isinstance(plain, dict):
            ((kind, item),) = plain.items()
            if kind == "node":
                return f"v{int(item)}"
            if kind == "dict":
                return "{" + ", ".join(f"{key!r}: {self.value(entry)}" for key, entry in item) + "}"
            return self.bind("c", f"{kind}:{item!r}", decode_atom(kind, item))
        if isinstance(plain, float):
            return self.bind("c", f"float:{plain!r}", plain)
        if plain is None or isinstance(plain, (bool, int, str)):
            return repr(plain)
        raise ValueError(f"{a_type(plain)} in a stored graph")

    def arguments(self, positional: Plain, keyword: Plain) -> str:
        parts = [self.value(item) for item in positional]
        for key, item in keyword["dict"]:
            # An operator's argument may have the name `lambda`.
            parts.append(
                f"**{{{str(key)!r}: {self.value(item)}}}"
                if iskeyword(key)
                else f"{checked_name(key)}={self.value(item)}"
            )
        return ", ".join(parts)


def decode_atom(kind: str, item: Any) -> Any:
    """Return the torch constant, complex number or slice of a tagged dict."""
    if kind == "torch":
        return getattr(torch, item)
    if kind == "device":
        return torch.device(item)
    if kind == "complex":
        return complex(*item)
    if kind == "slice" and all(part is None or isinstance(part, int) for part in item):
        return slice(*item)
    raise ValueError(f"unknown tag {kind!r} in a stored graph")


def to_python(graph: Plain, constants: dict[str, torch.Tensor]) -> Callable[..., list[Any]]:
    """Return `run(*inputs)`; the inputs are the graph's placeholders. Values are dropped after their last use."""
    writer = _Writer(graph)
    nodes = graph["nodes"]
    inputs = [f"v{index}" for index, node in enumerate(nodes) if node[0] == "input"]
    last_use: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if node[0] == "call":
            for operand in _nodes_in([node[2], node[3]]):
                last_use[operand] = index
    output_nodes = set(_nodes_in(graph["outputs"]))
    lines = []
    for index, node in enumerate(nodes):
        if node[0] == "constant":
            lines.append(f"v{index} = {writer.bind('k', 'constant:' + node[1], constants[node[1]])}")
        elif node[0] == "call":
            target = writer.bind("f", node[1], resolve_target(node[1]))
            lines.append(f"v{index} = {target}({writer.arguments(node[2], node[3])})")
            dead = sorted(operand for operand in set(_nodes_in([node[2], node[3]])) if last_use[operand] == index)
            names = [f"v{operand}" for operand in dead if operand not in output_nodes]
            if names:
                lines.append("del " + ", ".join(names))
    body = "\n    ".join([*lines, f"return {writer.value(graph['outputs'])}"])
    source = f"def run({', '.join(inputs)}):\n    {body}\n"
    return define(source, "run", writer.namespace, "eager graph")


def _nodes_in(plain: Plain) -> list[int]:
    if isinstance(plain, list):
        return [index for item in plain for index in _nodes_in(item)]
    if isinstance(plain, dict):
        if "node" in plain:
            return [plain["node"]]
        return [index for _, entry in plain.get("dict", []) for index in _nodes_in(entry)]
    return []


def to_module(graph: Plain, constants: dict[str, torch.Tensor]) -> torch.fx.GraphModule:
    """Return the graph as an FX module whose placeholders are the inputs; constants are buffers."""
    result = torch.fx.Graph()
    root = torch.nn.Module()
    values: list[Any] = []

    def decode(plain: Plain) -> Any:
        if isinstance(plain, list):
            return [decode(item) for item in plain]
        if isinstance(plain, dict):
            ((kind, item),) = plain.items()
            if kind == "node":
                return values[item]
            if kind == "dict":
                return {key: decode(entry) for key, entry in item}
            return decode_atom(kind, item)
        return plain

    for index, node in enumerate(graph["nodes"]):
        if node[0] == "input":
            values.append(result.placeholder(f"input_{index}"))
        elif node[0] == "constant":
            root.register_buffer(node[1], constants[node[1]])
            values.append(result.get_attr(node[1]))
        else:
            values.append(result.call_function(resolve_target(node[1]), tuple(decode(node[2])), decode(node[3])))
    result.output(decode(graph["outputs"]))
    return torch.fx.GraphModule(root, result)
