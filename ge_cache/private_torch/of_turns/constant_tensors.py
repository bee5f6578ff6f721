"""Control what a trace knows of the values of tensors, such as `torch.tensor(1.0)`.

torch runs operators on tensors of known values, to know the result of `.item()`. A collective would run on this rank
alone, or hang, and its current result would become a constant of the graph. So would the result of a third-party
operator, which may read anything. And of what it knows, torch 2.13 does not forget all that is written: through a view,
in a list of tensors, or without the version of the tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, SymNumberMemoDescriptor
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree

from gearcache.ge_cache.graphs.arguments import written_values
from gearcache.ge_cache.private_torch.probe import Probes

#: Namespaces of operators whose results depend only on their arguments, except random ones, which torch skips.
_COMPUTED = ("aten", "prims", "prim")
probes = Probes()


@probes.at(FakeTensorMode, "_dispatch_impl")
def dispatched(trace: Any, original: Any, self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Forget the values of fake tensors that an operator outside torch takes: it stays in the graph.

    Also forget those in lists that any operator writes.
    """
    forgotten = _written_in_lists(func, args, kwargs) if _is_computed(func) else _tensors(args, kwargs)
    for tensor in forgotten:
        if self.is_our_fake(tensor) and tensor.constant is not None:
            self.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)
            tensor.constant = None
    return original(self, func, types, args, kwargs)


@probes.at(SymNumberMemoDescriptor, "__get__")
def remembered(trace: Any, original: Any, self: Any, tensor: Any, kind: Any = None) -> Any:
    """Give each `.item()` and each size that values decide a symbol of its own: the tensor may have been written."""
    return original(self, tensor, kind) if self._is_nested_int else None


@probes.at(proxy_tensor, "proxy_call")
def recorded(trace: Any, original: Any, mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
    """Forget the values that the recording keeps of such tensors, and of those that the fake tensors have forgotten."""
    proxies: Any = proxy_tensor
    for tensor in _tensors(args, kwargs):
        is_forgotten = isinstance(tensor, FakeTensor) and tensor.constant is None
        if not is_forgotten and _is_computed(func):
            continue
        if isinstance(proxy := proxies.fetch_object_proxy(mode.tracer, tensor), proxies._ProxyTensor):
            proxy.constant = None
    return original(mode, func, pre_dispatch, args, kwargs)


def _is_computed(func: Any) -> bool:
    return getattr(func, "namespace", "aten") in _COMPUTED


def _written_in_lists(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors in the lists that an operator writes."""
    return _tensors([value for value in written_values(func, args, kwargs) if isinstance(value, (list, tuple))], {})


def _tensors(args: Any, kwargs: Any) -> list[Any]:
    return [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
