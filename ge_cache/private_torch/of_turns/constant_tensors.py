"""Control which operators on tensors of known values, such as `torch.tensor(1.0)`, run during a trace.

torch runs them to know the result of `.item()`. A collective would run on this rank alone, or hang, and its current
result would become a constant of the graph. So would the result of a third-party operator, which may read anything.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree

from gearcache.ge_cache.private_torch.probe import Probes

#: Namespaces of operators whose results depend only on their arguments, except random ones, which torch skips.
_COMPUTED = ("aten", "prims", "prim")
probes = Probes()


@probes.at(FakeTensorMode, "_dispatch_impl")
def dispatched(trace: Any, original: Any, self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Forget the values of fake tensors that an operator outside torch takes: it stays in the graph."""
    if not _is_computed(func):
        for tensor in _tensors(args, kwargs):
            if self.is_our_fake(tensor) and tensor.constant is not None:
                self.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)
                tensor.constant = None
    return original(self, func, types, args, kwargs)


@probes.at(proxy_tensor, "proxy_call")
def recorded(trace: Any, original: Any, mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
    """Forget the values that the recording keeps of such tensors."""
    proxies: Any = proxy_tensor
    for tensor in [] if _is_computed(func) else _tensors(args, kwargs):
        if isinstance(proxy := proxies.fetch_object_proxy(mode.tracer, tensor), proxies._ProxyTensor):
            proxy.constant = None
    return original(mode, func, pre_dispatch, args, kwargs)


def _is_computed(func: Any) -> bool:
    return getattr(func, "namespace", "aten") in _COMPUTED


def _tensors(args: Any, kwargs: Any) -> list[Any]:
    return [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
