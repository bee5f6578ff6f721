"""Find the proofs of a graph: for each padded size alone or equal ones together, with or without known fills.

As little as possible is assumed. Assumptions become part of the plan, and are compared where a size is padded: that
dims are equal, and the filling of an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import fx

from gearcache.ge_cache.padding.fills import is_exact
from gearcache.ge_cache.padding.proof import Proof

Simplify = Callable[[Any], Any]


class Proven(Struct, frozen=True):
    """A padded size, and the assumptions of its proof."""

    #: Its symbols: several where they are assumed to be equal.
    symbols: Sequence[Any]
    #: Input -> the assumed value of its filling.
    fills: Mapping[int, Any]
    #: Outputs that are right only if they hold no NaN.
    doubtful: list[int]


class Unproven(Struct, frozen=True):
    """A padded size, by the dim that names it, and the reason why it is not proven."""

    label: str
    reason: str


def prove_all(
    graph: fx.Graph,
    sizes: list[tuple[Any, ...]],
    simplify: Simplify,
    wanted: Mapping[Any, str],
    groups: Sequence[Sequence[Any]],
    given: Sequence[Any],
) -> list[Proven] | Unproven:
    """Prove that each of the `wanted` symbols may be padded; `given` are the fills of the inputs (None: not padded).

    `groups`: symbols that are equal at every gear. They are assumed to be equal where one cannot be proven alone.
    """
    proofs: list[Proven] = []
    for symbol, label in wanted.items():
        if any(symbol in proven.symbols for proven in proofs):
            continue
        group = next((group for group in groups if symbol in group), [])
        outcome: Proven | str = ""
        for tied in [[symbol], group] if group else [[symbol]]:
            outcome = _proven(graph, sizes, _equated(simplify, tied), tied, label, given)
            if isinstance(outcome, Proven):
                proofs = [proven for proven in proofs if not set(proven.symbols) & set(tied)]
                proofs.append(outcome)
                break
        if isinstance(outcome, str):
            return Unproven(label, outcome)
    return proofs


def vouch_all(
    graph: fx.Graph,
    simplify: Simplify,
    wanted: Mapping[Any, str],
    groups: Sequence[Sequence[Any]],
) -> list[Proven] | Unproven:
    """Return replacements for proofs where the caller guarantees that filling reaches no result.

    It remains to show where the real part of each result is: a dim is as long as a padded one, or does not depend on
    it.
    """
    tied = [next((group for group in groups if symbol in group), [symbol]) for symbol in wanted]
    proofs = [Proven(symbols, {}, []) for symbols in {tuple(symbols): symbols for symbols in tied}.values()]
    (output,) = [node for node in graph.nodes if node.op == "output"]
    for index, node in enumerate(output.args[0]):
        for dim, size in enumerate(node.meta["val"].shape):
            simple = simplify(size.node.expr) if isinstance(size, torch.SymInt) else size
            for symbol in getattr(simple, "free_symbols", ()):
                if symbol in wanted and symbol != simple:
                    return Unproven(wanted[symbol], f"dim {dim} of output {index} is {simple}, and real parts unknown")
    return proofs


def _proven(
    graph: fx.Graph,
    sizes: list[tuple[Any, ...]],
    simplify: Simplify,
    symbols: Sequence[Any],
    label: str,
    input_fills: Sequence[Any],
) -> Proven | str:
    """Return the proof that assumes the fewest fills, or the reason why none exists even with all of them."""
    reason: str | None = None
    for fills in _assumptions(input_fills):
        proof = Proof(symbols[0], simplify, label, fills)
        reason = proof.prove(graph, sizes)
        if reason is None:
            return Proven(symbols, fills, proof.doubtful)
    return str(reason)


def _assumptions(input_fills: Sequence[Any]) -> Iterator[dict[int, Any]]:
    exact_fills = {index: value for index, value in enumerate(input_fills) if is_exact(value)}
    yield {}
    yield from ({index: value} for index, value in exact_fills.items())
    if len(exact_fills) > 1:
        yield exact_fills


def _equated(simplify: Simplify, tied: Sequence[Any]) -> Simplify:
    """Return `simplify` for calls in which some symbols are equal."""

    def simplified(size: Any) -> Any:
        simple = simplify(size)
        if isinstance(simple, int) or not hasattr(simple, "xreplace"):
            return simple
        simple = simple.xreplace(dict.fromkeys(tied[1:], tied[0]))
        return int(simple) if simple.is_Integer else simple

    return simplified if len(tied) > 1 else simplify
