"""Names of Dynamo that differ between releases: functions with equal arguments and results have one entry here.

Code that replaces such a function looks its name up here, so that no other file depends on releases. torch 2.14 gave
methods that represent slots of Python's types the names of these slots.
"""

from __future__ import annotations

from typing import Any

#: The name in torch 2.13 -> the name in 2.14.
RENAMED = {
    "TorchScriptObjectVariable": "CustomClassObjectVariable",
    "generic_bool": "generic_is_true",
    "get_current_exception": "get_raised_exception",
    "mp_length": "mp_length_impl",
    "repr_impl": "tp_repr_impl",
    "richcompare_impl": "tp_richcompare_impl",
    "sq_contains": "sq_contains_impl",
    "sq_length": "sq_length_impl",
    "var_getattr": "tp_getattro_impl",
}


def name_here(owner: Any, name: Any) -> Any:
    """Return this release's name of an attribute of `owner`, or a key of a dictionary; `name` is that of torch 2.13."""
    is_there = name in owner if isinstance(owner, dict) else hasattr(owner, name)
    return name if is_there else RENAMED.get(name, name)


def all_names(names: frozenset[str] | set[str]) -> set[str]:
    """Return names together with those of other releases for them."""
    return {*names, *(RENAMED[name] for name in names if name in RENAMED)}
