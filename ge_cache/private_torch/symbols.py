"""Private names of torch about symbolic sizes: fake inputs that have them, and their expressions. One test per name."""

from __future__ import annotations

from typing import Any

import torch

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


def size_symbol(name: str) -> Any:
    """Return a symbol for a size."""
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)
