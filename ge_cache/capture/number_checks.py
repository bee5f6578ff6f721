"""Turn a capture's assumptions about its numbers into call checks.

Dynamo keeps an int symbolic without assuming anything of it, 0 and 1 included. Each condition that the trace evaluates
on one (`if self.count < 8`) is a guard of its shape environment; this module collects all of them, and the implied
ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.computed import number_names
from gearcache.ge_cache.capture.numbers import Numbers
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.gears.expressions import checked_expression, expression_function


def number_checks(
    numbers: Numbers, paths: Mapping[Any, Access], access: Callable[[Any], Access], shape_env: Any
) -> list[Check]:
    """Return checks of the numbers, whose paths are given by symbol; `access` turns Dynamo's sources into paths.

    The conditions that they compare are recorded in `numbers.checked`. Conditions on sizes and on numbers that the
    frame passes are left to each graph, which knows its sizes. `CaptureError` for an assumption that cannot be a check.
    """
    if not numbers:
        return []
    names = dict(numbers.names)
    places = {symbol: paths[symbol] for symbol in names}
    conditions = []
    for condition in private_symbols.assumed(shape_env, numbers.symbols):
        sizes = condition.free_symbols - set(numbers.symbols)
        if sizes and not condition.free_symbols - sizes - set(numbers.passed):
            continue
        for symbol in sizes:
            base, dim = private_symbols.size_source(shape_env, symbol)
            places[symbol] = access(base).then("size", dim)
            names.setdefault(symbol, f"n{len(names)}")
        conditions.append(condition)
    numbers.checked.update(conditions, private_symbols.implied(shape_env, numbers.symbols))
    texts = [number_text(item, names) for item in conditions]
    named_paths = {names[symbol]: place for symbol, place in places.items()}
    hints: dict[str, float] = {names[symbol]: int(shape_env.backed_var_to_val[symbol]) for symbol in places}
    for symbol, name in numbers.float_names.items():
        named_paths[name], hints[name] = paths[symbol], float(shape_env.backed_var_to_val[symbol])
    texts += numbers.float_conditions
    names_of = {text: number_names(text) for text in texts}
    for text in names_of:
        if expression_function(text, tuple(hints))(**hints) is not True:
            raise CaptureError("", f"it assumes `{text}` of a number, which is not so in the traced call")
    alone = {*numbers.names.values(), *numbers.float_names.values()}.difference(*names_of.values())
    checks = [_check([name], [], named_paths) for name in sorted(alone)]
    return checks + [_check(sorted(used_names), [text], named_paths) for text, used_names in names_of.items()]


def _check(used_names: list[str], texts: list[str], paths: Mapping[str, Access]) -> Check:
    return Check("numbers", paths[used_names[0]], [texts, [[name, paths[name].to_plain()] for name in used_names]])


def number_text(condition: Any, names: Mapping[Any, str]) -> str:
    """Return a condition on numbers as source over their names; `CaptureError` where it is not simple arithmetic."""
    renamed = {symbol: private_symbols.number_symbol(name) for symbol, name in names.items()}
    try:
        return checked_expression(f"({private_symbols.print_expression(condition.xreplace(renamed))})")
    except ValueError as error:
        raise CaptureError("", f"its trace assumes of a number: {error}") from None
