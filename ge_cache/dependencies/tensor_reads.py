"""Record what a trace reads of tensors beyond their values, as checks of every call.

Sizes, strides and dtype of the graph's inputs are compared on every call, so a tensor whose sizes the trace reads stays
an input of the graph, used there or not. Other facts read of a tensor (`requires_grad`, its class) are noted here and
become checks, as do the facts of a tensor that the trace saw and that is not an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import is_given
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.names import a_type
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES, reads, tensor_plain

#: Attributes that follow from dtype, device type, layout, sizes and strides.
_FOLLOWS = {
    *("H", "T", "data", "device", "dtype", "imag", "itemsize", "layout", "mH", "mT", "nbytes", "ndim", "real", "shape"),
    *("is_cpu", "is_cuda", "is_ipu", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_nested"),
    *("is_quantized", "is_sparse", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu"),
    *("__len__", "dim", "dim_order", "element_size", "get_device", "is_complex", "is_contiguous", "is_floating_point"),
    *("ndimension", "nelement", "numel", "size", "storage_type", "stride", "type"),
}
#: Attributes whose value no other process could compare.
_OF_ONE_MOMENT = {"_cdata", "_version"}
_BUFFER_MARK = "_is_buffer"


class TensorReads(Struct):
    """Notes what Dynamo reads of tensors from before the call, by their sources."""

    method: str
    _sized: set[Any] = field(default_factory=set)
    _kinds: dict[Any, None] = field(default_factory=dict)
    _values: dict[tuple[Any, str], Any] = field(default_factory=dict)

    def sizes(self, source: Any) -> None:
        """Note that sizes or strides are read."""
        if is_given(source):
            self._sized.add(source)

    def is_sized(self, source: Any) -> bool:
        """Whether sizes or strides of a tensor were read."""
        return source in self._sized

    def attribute(self, source: Any, name: str, is_constant: bool, value: Any) -> None:
        """Note that an attribute is read; `value` is what the trace makes a constant."""
        if not is_given(source):
            return
        if name == "__class__":
            self.kind(source)
        elif name in _OF_ONE_MOMENT or (name == "_base" and not is_constant):
            raise CaptureError(self.method, f"it reads `{name}` of a tensor, which cannot be checked on a later call")
        elif is_constant and name not in _FOLLOWS:
            self._values[source, name] = value

    def method_result(self, source: Any, name: str, value: Any) -> None:
        """Note a method of a tensor whose result the trace makes a constant."""
        if not is_given(source) or name in _FOLLOWS:
            return
        if name == "is_inference":
            self._values[source, name] = value
        else:
            raise CaptureError(self.method, f"it calls `Tensor.{name}`, whose result may differ on another call")

    def instance(self, source: Any, classes: Any) -> None:
        """Note an `isinstance`; questions that a tensor, a parameter and a buffer answer alike need no check."""
        for cls in classes if isinstance(classes, tuple) else (classes,):
            if isinstance(cls, type) and issubclass(cls, torch.Tensor) and cls is not torch.Tensor:
                self.kind(source)

    def kind(self, source: Any) -> None:
        """Note that the class of a tensor is read."""
        if is_given(source):
            self._kinds[source] = None

    def checks(
        self,
        matched: Iterable[Any],
        held_sources: Iterable[Any],
        access: Callable[[Any], Access],
        value: Callable[[Access], Any],
    ) -> list[Check]:
        """Return the checks of the tensors that the trace saw: `matched` are the sources of all that Dynamo guards.

        Every tensor in `matched` counts: one that is not in `held_sources`, as the graph has it neither as an input nor
        bound to it, gets a check here. A buffer whose sizes alone were read is not in them.
        """
        covered = set(held_sources)
        checks = []
        for source in matched:
            if source not in covered:
                path = access(source)
                tensor = value(path)
                if type(tensor) not in PLAIN_TYPES:
                    cause = f"it passes on `{path.text}`, {a_type(tensor)}, which its graph does not compute with"
                    raise CaptureError(self.method, cause)
                checks.append(Check("tensor", path, tensor_plain(tensor, sizes=source in self._sized)))
        for source in self._kinds:
            path = access(source)
            tensor = value(path)
            checks.append(observe("type", path, tensor))
            checks.append(
                observe("has_attr" if hasattr(tensor, _BUFFER_MARK) else "no_attr", path, tensor, _BUFFER_MARK)
            )
        for (source, name), constant in self._values.items():
            path = access(source)
            try:
                expected = [name, to_plain(constant)]
            except NotConstant as error:
                raise CaptureError(self.method, f"it reads `{name}` of `{path.text}`, a {error}") from None
            if not reads(value(path), expected):
                raise CaptureError(self.method, f"it reads `{name}` of `{path.text}`, which a trace cannot tell")
            checks.append(Check("reads", path, expected))
        return checks
