"""Control which operators on tensors of known values, such as `torch.tensor(1.0)`, run during a trace.

torch runs them to know the result of `.item()`. A collective would run on this rank alone, or hang, and its current
result would become a constant of the graph. So would the result of a third-party operator, which may read anything.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from gearcache.ge_cache.capture.exchanged import exchanged, here

#: Namespaces of operators whose results depend only on their arguments, except random ones, which torch skips.
_COMPUTED = ("aten", "prims", "prim")


@contextlib.contextmanager
def only_own_operators_computed() -> Iterator[None]:
    """Let this thread's traces compute only torch's own operators; all others stay in the graph."""
    with exchanged(_replacements()):
        yield


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental import proxy_tensor

    mode: Any = FakeTensorMode
    proxies: Any = proxy_tensor
    dispatch, call = mode._dispatch_impl, proxies.proxy_call

    @functools.wraps(dispatch)
    def _dispatch_impl(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not _is_computed(func):
            for tensor in _tensors(args, kwargs):
                if self.is_our_fake(tensor) and tensor.constant is not None:
                    self.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)
                    tensor.constant = None
        return dispatch(self, func, types, args, kwargs)

    @functools.wraps(call)
    def proxy_call(proxy_mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        for tensor in [] if _is_computed(func) else _tensors(args, kwargs):
            if isinstance(proxy := proxies.fetch_object_proxy(proxy_mode.tracer, tensor), proxies._ProxyTensor):
                proxy.constant = None
        return call(proxy_mode, func, pre_dispatch, args, kwargs)

    yield mode, "_dispatch_impl", here(_dispatch_impl, dispatch)
    yield proxies, "proxy_call", here(proxy_call, call)


def _is_computed(func: Any) -> bool:
    return getattr(func, "namespace", "aten") in _COMPUTED


def _tensors(args: Any, kwargs: Any) -> list[Any]:
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
