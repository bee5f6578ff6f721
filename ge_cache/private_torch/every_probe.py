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
    user_containers,
)
from gearcache.ge_cache.private_torch.of_turns import constant_tensors, dropout, own_state, strides
from gearcache.ge_cache.private_torch.probes import (
    addresses,
    attributes,
    autograd,
    builtins,
    classes,
    constants,
    escapes,
    exceptions,
    floats,
    graphs,
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
        graphs,
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
        user_containers,
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
        builtins,
        autograd,
        numpy_wrappers,
        floats,
    )
)
#: Those that each turn has in place.
OF_TURNS = tuple(file.probes for file in (own_state, dropout, strides, constant_tensors))
