"""Private names of torch about symbolic sizes: fake inputs that have them, and their expressions. One test per name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator
from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch.fake import fake_mode


class SymbolicInputs:
    """Fake inputs whose sizes are expressions over named symbols; collects what a compiler assumes about them."""

    def __init__(self, hints: dict[str, int]) -> None:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self._env = ShapeEnv()
        self.mode = fake_mode(self._env)
        self._names: dict[Any, str] = {}
        self.sizes: dict[str, Any] = {}
        for name, hint in hints.items():
            source = ConstantSource(name)
            hint = max(hint, 2)  # less would be taken for a constant
            symbol = self._env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
            self._names[symbol] = name
            self.sizes[name] = self._env.create_symintnode(symbol, hint=hint, source=source)

    def tensor(self, sizes: list[Any], strides: list[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return a fake tensor; sizes and strides may be symbolic."""
        with self.mode:
            return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    def assumptions(self) -> list[str]:
        """Return the guards that were added since, as Python source over the names."""
        import sympy

        rename = {symbol: size_symbol(name) for symbol, name in self._names.items()}
        conditions = [self._env.simplify(self._env.replace(guard.expr)) for guard in self._env.guards]
        found = [item.xreplace(rename) for item in conditions if getattr(item, "free_symbols", None)]
        for symbol, bounds in self._env.var_to_range.items():
            replaced = self._env.replacements.get(symbol)
            if (
                symbol in rename and str(rename[symbol])[:1] == "u"
            ):  # a symbol of `mark_unbacked`: code wants at least 2
                found.append(rename[symbol] >= bounds.lower)
            if symbol in rename and replaced is not None and replaced != symbol:
                found.append(sympy.Eq(rename[symbol], replaced.xreplace(rename), evaluate=False))
            elif symbol in rename and bounds.upper.is_Integer and int(bounds.upper) < 2**62:
                found.append(rename[symbol] <= bounds.upper)
        return list(dict.fromkeys(print_expression(item) for item in found))


def print_expression(expression: Any) -> str:
    """Return a size expression as Python source."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(expression))


def number_symbol(name: str) -> Any:
    """Return a symbol for any int."""
    import sympy

    return sympy.Symbol(name, integer=True)


def number_symbols(shape_env: Any, names: Collection[str]) -> dict[Any, Any]:
    """Return the symbols of the ints that a trace was to keep symbolic, each with Dynamo's source.

    `CaptureError` when it made one of another int as well, or has found out that one equals something else.
    """
    found: dict[Any, Any] = {}
    for symbol, sources in shape_env.var_to_sources.items():
        for source in sources:
            if not names or type(source).__name__ in ("TensorPropertySource", "CallMethodItemSource"):
                continue  # a size of a tensor, or its value
            if source.name not in names or len(sources) > 1:
                raise CaptureError("", f"`{source.name}` became a symbol")
            if symbol in shape_env.replacements:
                raise CaptureError("", f"its trace fixes `{source.name}` as {shape_env.replacements[symbol]}")
            found[symbol] = source
    return found


def gives_number(node: torch.fx.Node) -> bool:
    """Whether a recorded node takes the number out of a tensor of one element."""
    return node.target in (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


def assumed(shape_env: Any, symbols: Collection[Any]) -> list[Any]:
    """Return all that a trace assumed about some symbols: conditions on them, ranges included.

    `CaptureError` when it left an assumption to be checked by the graph.
    """
    wanted = set(symbols)
    left = [item for group in shape_env.deferred_runtime_asserts.values() for item in group]
    if any(wanted & item.expr.free_symbols for item in left):
        raise CaptureError("", "its graph is to check what it assumes about a number")
    found = [guard.expr for guard in shape_env.guards if wanted & getattr(guard.expr, "free_symbols", set())]
    for symbol in symbols:
        bounds = shape_env.var_to_range[symbol]
        found += [symbol >= bounds.lower] if bounds.lower.is_Integer else []
        found += [symbol <= bounds.upper] if bounds.upper.is_Integer else []
    return found


def size_symbol(name: str) -> Any:
    """Return a symbol for a size."""
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


@contextlib.contextmanager
def watched_floats() -> Iterator[list[bool]]:
    """Yield a list that is not empty when a symbolic float was made meanwhile, beside those inside of operators.

    sympy computes with real numbers: it takes `n * 0.1 * 10` for `n`, settles a branch on that without a guard, and
    one node of the graph stands for both.
    """
    made: list[bool] = []
    number: Any = torch.SymFloat
    init = number.__init__

    def watched(self: Any, *arguments: Any, **keywords: Any) -> None:
        if not _is_inside_operator():
            made.append(True)
        init(self, *arguments, **keywords)

    with exchanged([(number, "__init__", here(watched, init))]):
        yield made


def _is_inside_operator() -> bool:
    """Whether an operator is being tried on fake tensors: what it makes of a number on its way is its own affair."""
    frame = sys._getframe()
    while (outer := frame.f_back) is not None:
        if outer.f_code.co_name == "__torch_dispatch__":
            return True
        frame = outer
    return False
