"""Report what a trace reads of tensors besides their values, and of autograd; keep tensors with read sizes as inputs.

Dynamo drops inputs that no operation of the graph uses, although the trace contains their sizes. It notes sizes and
strides when it creates a tensor, and uses the notes also after `y.transpose_(0, 1)` or `y.squeeze_()`: `torch.compile`
is wrong as well (torch 2.13). `scaled_dot_product_attention(..., is_causal=q.shape[1] > 1)` and
`x.sum(-1, keepdim=n > 1)` accept a bool but no symbol: Dynamo claims that the call fails, although it works. The graph
then depends on the answer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables.ctx_manager import GradModeVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable, UntypedStorageVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._subclasses.fake_tensor import FakeTensorMode

from gearcache.ge_cache.capture.source_paths import is_given
from gearcache.ge_cache.private_torch.nodes import argument_of
from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.ge_cache.private_torch.symbols import depends_on_values

#: Where Dynamo's tensor variable keeps facts that follow from sizes and strides: each question reads one of them.
_SIZE_FIELDS = ("_size", "stride", "is_contiguous")
#: Attributes and methods that follow from dtype, device type, layout, sizes and strides.
_FOLLOWS = {
    *("H", "T", "data", "device", "dtype", "imag", "itemsize", "layout", "mH", "mT", "nbytes", "ndim", "real", "shape"),
    *("is_cpu", "is_cuda", "is_ipu", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_nested"),
    *("is_quantized", "is_sparse", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu"),
    *("__len__", "dim", "dim_order", "element_size", "get_device", "is_complex", "is_contiguous", "is_floating_point"),
    *("ndimension", "nelement", "numel", "size", "storage_type", "stride", "type"),
}
#: Attributes whose value no other process could compare.
_OF_ONE_MOMENT = {"_cdata", "_version"}
#: Properties about autograd, and the answers where nothing is recorded.
_UNRECORDED = {"requires_grad": False, "grad_fn": None, "is_leaf": True, "retains_grad": False}
#: Operators that remove a dim if its size is 1. Where values decide the size, torch takes it for another one (2.13).
_ASKS_FOR_ONE = {
    torch.ops.aten.squeeze.dim,
    torch.ops.aten.squeeze.dims,
    torch.ops.aten.squeeze_.dim,
    torch.ops.aten.squeeze_.dims,
}
#: `torch._check_value` makes a condition of the graph of what it receives, `torch.sym_not` another symbol.
_FOR_SYMBOLS = ("_check", "sym_")
probes = Probes()


@probes.at_field(TensorVariable, *_SIZE_FIELDS)
def read_size(trace: Any, self: Any) -> None:
    """Note a tensor whose sizes or strides matter."""
    trace.note("sizes", self.__dict__.get("source"))


@probes.at(TensorVariable, "var_getattr")
def read_attribute(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Note an attribute of a tensor from before the call, with its value if that is a constant, or of a result."""
    _check_result(trace, self, tx, name)
    variable = original(self, tx, name)
    if self.source is not None:
        if hasattr(torch.Tensor, name):
            _note_attribute(trace, self.source, name, *_constant(variable))
    elif name in _UNRECORDED and variable.is_python_constant():
        _note_of_result(trace, name, variable.as_python_constant())
    return variable


@probes.at(TensorVariable, "call_obj_hasattr")
def asked_for_attribute(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Ask a tensor for an attribute."""
    _check_result(trace, self, tx, name)
    return original(self, tx, name)


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call a method; note a tensor of which the trace asks for a gradient, and a result that is a constant."""
    if name == "requires_grad_" and self.source is not None:
        trace.note("tensor with grad", self.source)
    if name == "storage_offset":
        trace.refuse("it calls `Tensor.storage_offset`, whose result may differ on another call", at_once=True)
    args, kwargs = _evaluated(args, kwargs)
    result = original(self, tx, name, args, kwargs)
    _note_again(tx, name, (self, *args))
    is_constant, value = _constant(result)
    if is_given(self.source) and is_constant and value is not None and name not in _FOLLOWS:
        if name != "is_inference":
            trace.refuse(f"it calls `Tensor.{name}`, whose result may differ on another call", at_once=True)
        trace.note("attribute of a tensor", self.source, name, value)
    return result


@probes.at(UntypedStorageVariable, "call_method")
def called_storage(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse the size of a storage: the tensor may be a part of a larger one at another call."""
    if name != "resize_":
        trace.refuse(f"it calls `UntypedStorage.{name}`, whose result may differ on another call", at_once=True)
    return original(self, tx, name, args, kwargs)


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Call a function; note reads and changes of grad mode."""
    if self.value in (torch.is_grad_enabled, torch._C._set_grad_enabled):
        trace.note("grad mode")
    name = str(getattr(self.value, "__name__", ""))
    if not name.startswith(_FOR_SYMBOLS):
        args, kwargs = _evaluated(args, kwargs)
    result = original(self, tx, args, kwargs)
    _note_again(tx, name, (*args, *kwargs.values()))
    return result


@probes.at(GradModeVariable, "create")
def made_mode(trace: Any, original: Any, tx: Any, target_value: Any, initialized: bool = False, **keywords: Any) -> Any:
    """Note `torch.set_grad_enabled`, which may be called without a `with`."""
    if initialized:
        trace.note("grad mode")
    return original(tx, target_value, initialized, **keywords)


@probes.at(FakeTensorMode, "dispatch")
def dispatched(trace: Any, original: Any, self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Refuse a number of dims that depends on values."""
    if func in _ASKS_FOR_ONE:
        tensor, dims = args
        if any(depends_on_values(tensor.shape[dim]) for dim in ([dims] if type(dims) is int else dims)):
            trace.refuse("it squeezes a dim whose size depends on values, and may be 1: index or reshape it instead")
    return original(self, func, types, args, kwargs)


@probes.at(OutputGraph, "remove_unused_graphargs")
def removed_inputs(trace: Any, original: Any, self: Any) -> None:
    """Keep tensors whose sizes were read."""
    inputs = [node for node in self.placeholders if isinstance(node.meta["grapharg"].example, torch.Tensor)]
    sized = {source for (source,) in trace.given("sizes")}
    kept_inputs = [node for node in inputs if node.users or node.meta["grapharg"].source in sized]
    user = self.graph.call_function(_keep, tuple(kept_inputs))
    original(self)
    self.graph.erase_node(user)


def _check_result(trace: Any, tensor: Any, tx: Any, name: str) -> None:
    """Refuse an attribute of a result that depends on what the result is a part of, or on which object it is."""
    if tensor.source is not None:
        return
    is_of_object = name == "grad" or not hasattr(torch.Tensor, name)
    if name in ("_base", "_cdata") or (is_of_object and argument_of(tensor, tx) is not None):
        trace.refuse(f"it reads `{name}` of a result, which cannot be checked on a later call", at_once=True)


def _note_attribute(trace: Any, source: Any, name: str, is_constant: bool, value: Any) -> None:
    """Note an attribute of a tensor, unless a call compares what it follows from; `value`: the constant."""
    if name == "__class__":
        trace.note("class of a tensor", source, False)
    elif is_given(source) and (name in _OF_ONE_MOMENT or (name == "_base" and not is_constant)):
        trace.refuse(f"it reads `{name}` of a tensor, which cannot be checked on a later call", at_once=True)
    elif is_constant and name not in _FOLLOWS:
        trace.note("attribute of a tensor", source, name, value)


def _note_of_result(trace: Any, name: str, value: Any) -> None:
    """Note a property that was read of a result, which depends on what the result was made from."""
    trace.note("grad mode")
    trace.note("result asked")
    if value != _UNRECORDED[name]:
        if not trace.with_grad:
            trace.refuse(
                f"it reads `{name}` of a tensor that it made under torch.enable_grad(), and a cached call records "
                "nothing; leave enable_grad() out of it",
                at_once=True,
            )
        trace.note("result recorded")


def _keep(*_: Any) -> None:
    """A user of the inputs to keep, while unused ones are removed."""


def _constant(variable: Any) -> tuple[bool, Any]:
    if not variable.is_python_constant():
        return False, None
    return True, variable.as_python_constant()


def _evaluated(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return arguments with the current values of their bools."""
    if not any(map(_is_flag, (*args, *kwargs.values()))):
        return args, kwargs
    return [*map(_value_of, args)], {name: _value_of(value) for name, value in kwargs.items()}


def _is_flag(argument: Any) -> bool:
    """Return whether an argument is a symbol for a bool that is known in the traced call."""
    # `isinstance` would realise a lazy variable.
    is_symbol = type(argument) is SymNodeVariable and argument.python_type() is bool
    return is_symbol and bool(argument.sym_num.node.has_hint())


def _value_of(argument: Any) -> Any:
    specialize: Any = specialize_symnode
    return specialize(argument) if _is_flag(argument) else argument


def _note_again(tx: Any, name: str, variables: Any) -> None:
    """Let Dynamo note sizes and strides again after a call that changes its arguments."""
    if not name.partition(".")[0].endswith("_") or name.endswith("__"):
        return
    for variable in variables:
        if issubclass(type(variable), TensorVariable) and variable.proxy is not None:
            variable.synchronize_attributes(tx)
