"""All probes, in the order in which they are put in place: of two at one place, the later one calls the earlier."""

from __future__ import annotations

from gearcache.ge_cache.private_torch.corrections import (
    comparisons,
    containers,
    flags,
    iterators,
    made_objects,
    numpy_wrappers,
    resized,
    symbolic,
)
from gearcache.ge_cache.private_torch.probes import (
    addresses,
    attributes,
    autograd,
    classes,
    constants,
    escapes,
    exceptions,
    floats,
    identities,
    inlined,
    inputs,
    key_views,
    keys,
    loggers,
    lookups,
    reads,
    script_objects,
    sets,
    texts,
    views,
)

PROBES = tuple(
    file.probes
    for file in (
        inputs,
        inlined,
        views,
        classes,
        attributes,
        keys,
        sets,
        iterators,
        containers,
        exceptions,
        comparisons,
        constants,
        symbolic,
        addresses,
        texts,
        resized,
        made_objects,
        escapes,
        script_objects,
        loggers,
        flags,
        key_views,
        lookups,
        reads,
        identities,
        autograd,
        numpy_wrappers,
        floats,
    )
)
