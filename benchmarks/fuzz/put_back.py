"""Reintroduces former bugs of gearcache, one at a time, and counts the cases until the fuzzer finds each.

    python -m benchmarks.fuzz put-back              all of them
    python -m benchmarks.fuzz put-back watch names  some

Each bug removes one mechanism. If nothing is found without it, the mechanism guards nothing that the fuzzer tries.

Bugs that a second mechanism hides are not included. Buffers that a method assigns would be bound
(`Weights.are_replaced`), but the watch sees the assignment, and each call loads again. Absent attributes are guarded by
Dynamo as well. Overlapping inputs are wrong only with `inductor`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.fuzz.campaign import Campaign

_TRACE = "gearcache.ge_cache.private_torch"


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _in_place(module: str, path: str, value: Any) -> None:
    """Replace the object at a dotted path in a module, for the rest of this process; `AttributeError` if it is gone."""
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(f"gearcache.{module}")
    for each in owners:
        owner = getattr(owner, each)
    if not hasattr(owner, name):  # else nothing would be taken away, and nothing found
        raise AttributeError(f"`gearcache.{module}` has no `{path}` to be replaced: it has moved, or has another name")
    setattr(owner, name, value)


def _without(file: str) -> Callable[[], None]:
    """Leave out the probes of a file."""

    def remove() -> None:
        every, left_out = (importlib.import_module(f"{_TRACE}.{name}") for name in ("every_probe", file))
        kept = tuple(probes for probes in every.PROBES if probes is not left_out.probes)
        _in_place("ge_cache.private_torch.every_probe", "PROBES", kept)

    return remove


def _exchange(*changes: tuple[str, str, Any]) -> Callable[[], None]:
    def exchange() -> None:
        for module, path, value in changes:
            _in_place(module, path, value)

    return exchange


def _unwatched() -> None:
    _in_place("serving.find.basis", "BindingWatch.over", lambda self, bases: lambda: True)
    _in_place("serving.find.basis", "BindingWatch.is_outdated", lambda self, bases, scope: False)


def _unnoted(*kinds: str) -> Callable[[], None]:
    """Leave out the notes of some kinds that a trace takes."""

    def remove() -> None:
        from gearcache.ge_cache.dependencies.log import TraceLog

        of = TraceLog.of
        _in_place("ge_cache.dependencies.log", "TraceLog.of", lambda log, kind: [] if kind in kinds else of(log, kind))

    return remove


def _unread_sizes() -> None:
    from gearcache.ge_cache.dependencies.tensor_reads import tensor_checks

    _unnoted("sizes")()
    without_matched = lambda log, paths, matched, held: tensor_checks(log, paths, [], held)  # noqa: E731
    _in_place("ge_cache.capture.capture", "tensor_checks", without_matched)


def _classes_unchecked() -> None:
    from gearcache.ge_cache.dependencies.fact_checks import BUILTINS
    from gearcache.guards.evidence.checks import Check

    unchecked = Check("not_none", BUILTINS, True)
    _in_place("ge_cache.dependencies.fact_checks", "FactChecks._class_check", lambda self, names: unchecked)


def _read_shared(key: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the method of any instance that the dictionary was copied from."""
    return lambda instance: instance.__dict__[key] if key in instance.__dict__ else make(instance)


def _no_names(parameters: Any) -> str:
    return ""


#: The removed mechanisms, by their section in `docs/fuzzing.md`.
BUGS: dict[str, Callable[[], None]] = {
    "2 modules in arguments are bound": _exchange(
        ("ge_cache.capture.tensors", "Weights.are_bound", lambda self, source: True),
    ),
    "2 copies share the method": _exchange(
        ("serving.call.decorated_method", "_reader", _read_shared),
    ),
    "2 nothing is watched": _unwatched,
    "3 sizes that are read are no inputs": _unread_sizes,
    "3 identities are not compared": _exchange(
        ("ge_cache.capture.capture", "identity_checks", lambda log, paths: []),
    ),
    "3 descriptors are not compared": _unnoted("descriptor"),
    "3 function modes are not seen": _exchange(
        ("serving.call.served", "has_function_mode", lambda: False),
        ("guards.dispatch.function", "has_function_mode", lambda: False),
    ),
    "4 generated names are the user's": _exchange(("guards.dispatch.check_code", "_unused_prefix", _no_names)),
    "5 classes are not compared": _classes_unchecked,
    "5 type tests are not asked again": _unnoted("type test"),
    "5 sets have one order": _without("probes.sets"),
    "5 keys are not compared": _without("probes.keys"),
    "5 constants are not looked for among objects": _without("corrections.comparisons"),
    "5 texts and addresses": _without("probes.addresses"),
}


def put_back(name: str) -> None:
    """Remove one mechanism from this process."""
    BUGS[name]()


def main(given: argparse.Namespace) -> int:
    """Search for each bug; 1 if one was not found."""
    wanted = [name for name in BUGS if not given.bugs or any(word in name for word in given.bugs)]
    table = Table("bug", "cases until it was found", "as")
    missed = 0
    for name in wanted:
        campaign = Campaign(given.seed, "eager", bug=name)
        with contextlib.suppress(KeyboardInterrupt):
            campaign.run(range(given.cases), processes=given.processes)
        missed += not campaign.found
        found = campaign.found[0].failure if campaign.found else None
        number = str(campaign.cases) if found else f"not in {campaign.cases}"
        table.add_row(name, number, f"{found.kind}: {found.detail}"[:60] if found else "")
    Console(width=140).print(table)
    return min(1, missed)
