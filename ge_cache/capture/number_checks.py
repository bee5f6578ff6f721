"""What a capture assumed about its symbolic ints, as call checks.

Dynamo keeps an int symbolic without assuming anything of it, 0 and 1 included. Whatever the trace asked of one on its
way (`if self.count < 8`) is a guard of its shape environment; all of them are taken here, and the ranges that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.counters import Numbers, SizeDependence
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.gears.expressions import checked_expression, expression_function

_LEAST, _GREATEST = -(2**63), 2**63 - 1


def number_checks(numbers: Numbers, accesses: Mapping[Any, Access], shape_env: Any) -> list[Check]:
    """Return checks of the ints at `accesses`, by symbol; `CaptureError` for an assumption that cannot be one.

    Beside what the trace assumed: what a graph takes as a tensor has 64 bits, and nothing is divided by 0.
    """
    if not numbers.symbols:
        return []
    names = numbers.names()
    texts = [_text(condition, names) for condition in private_symbols.assumed(shape_env, numbers.symbols)]
    texts += [f"{text} != 0" for text in numbers.divisors]
    texts += [f"{_LEAST} <= {feed.text} <= {_GREATEST}" for feed in numbers.feeds if feed.kind == "int"]
    paths = {names[symbol]: access for symbol, access in accesses.items()}
    hints = {names[symbol]: int(shape_env.backed_var_to_val[symbol]) for symbol in accesses}
    groups: list[tuple[set[str], list[str]]] = []
    for text in dict.fromkeys(texts):
        used = {name for name in paths if name in text}
        if expression_function(text, tuple(hints))(**hints) is not True:
            raise CaptureError("", f"it assumes `{text}` of a number, which is not so in the traced call")
        met = [group for group in groups if group[0] & used]
        groups = [group for group in groups if group not in met]
        groups.append((used.union(*(group[0] for group in met)), [*(item for group in met for item in group[1]), text]))
    return [_check(sorted(used), held, paths) for used, held in groups]


def _check(used: list[str], texts: list[str], paths: Mapping[str, Access]) -> Check:
    return Check("numbers", paths[used[0]], [texts, [[name, paths[name].to_plain()] for name in used]])


def _text(condition: Any, names: Mapping[Any, str]) -> str:
    if condition.free_symbols - set(names):
        raise SizeDependence("", f"its trace compares a number with a size: {condition}")
    renamed = {symbol: private_symbols.number_symbol(name) for symbol, name in names.items()}
    try:
        return checked_expression(f"({private_symbols.print_expression(condition.xreplace(renamed))})")
    except ValueError as error:
        raise CaptureError("", f"its trace assumes of a number: {error}") from None
