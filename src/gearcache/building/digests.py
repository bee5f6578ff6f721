"""Digests that show whether two processes would compile and store the same.

Ranks of a job share one compile if these are equal. If a trace contains a rank, a share of a table or another device,
its digests differ, because the graph or its dependencies differ. Process groups count by role: their position in the
order in which the variant uses them, and their number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from msgspec import msgpack
from msgspec.structs import asdict

from gearcache.ge_cache.compile_job import CompileJob
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.dispatch.stored.variant_groups import with_groups

#: Fields that a compile adds to a gear; and fields that may differ although the blobs are equal.
_COMPILED = ("header", "blobs", "seconds")
_TIMES = ("header", "seconds", "conditions")


def job_digest(job: CompileJob) -> str:
    """Return the digest of everything that a compiler is given."""
    inputs = [_spec(item) for item in job.inputs]
    attributes = {name: _spec(item) for name, item in job.attributes.items()}
    return _digest(asdict(job) | {"inputs": inputs, "attributes": attributes})


def variant_digest(variant: StoredVariant, jobs: Sequence[str]) -> str:
    """Return the digest of a variant before its compile: frame, checks, evidence, sources, gears, and their jobs."""
    return _digest([_without(_by_role(variant), _COMPILED), list(jobs)])


def stored_digest(variant: StoredVariant, *, by_role: bool = True) -> str:
    """Return the digest of a variant after its compile, including its blobs, and the names of its groups if wanted."""
    return _digest(_without(_by_role(variant) if by_role else variant, _TIMES))


def _by_role(variant: StoredVariant) -> StoredVariant:
    roles: dict[str, int] = {}
    return with_groups(variant, lambda group: ["role", roles.setdefault(repr(group), len(roles)), len(group[1])])


def _without(variant: StoredVariant, names: Sequence[str]) -> dict[str, Any]:
    plain = variant.to_plain()
    gears = [{name: value for name, value in gear.items() if name not in names} for gear in plain["gears"]]
    return plain | {"gears": gears}


def _spec(spec: Any) -> list[Any]:
    return [str(getattr(spec, name, None)) for name in ("sizes", "strides", "dtype", "device")] + [repr(spec)]


def _digest(value: Any) -> str:
    """Return the sha256 of some data; values that are not plain are represented by their `repr`."""
    return hashlib.sha256(msgpack.encode(value, enc_hook=repr)).hexdigest()
