"""All probes, in the order in which they are put in place: of two at one place, the later one calls the earlier."""

from __future__ import annotations

from importlib import import_module

from gearcache.ge_cache.private_torch.probe import Probes

_ROOM = "gearcache.ge_cache.private_torch"
_FILES = (
    "probes.met",
    "probes.inputs",
    "probes.inlined",
    "probes.writes",
    "probes.classes",
    "probes.attributes",
    "probes.keys",
    "probes.sets",
    "corrections.containers",
    "corrections.comparisons",
    "corrections.symbolic",
    "probes.addresses",
    "probes.texts",
    "corrections.made_objects",
    "corrections.iterators",
    "probes.loggers",
    "probes.lookups",
    "probes.reads",
    "probes.opaque",
    "probes.cached_functions",
    "probes.floats",
)

_FILES_OF_TURNS = ("of_turns.own_state", "of_turns.dropout", "of_turns.strides", "of_turns.constant_tensors")


def _probes_of(files: tuple[str, ...]) -> tuple[Probes, ...]:
    return tuple(import_module(f"{_ROOM}.{file}").probes for file in files)


PROBES = _probes_of(_FILES)
#: Those that each turn has in place.
OF_TURNS = _probes_of(_FILES_OF_TURNS)
