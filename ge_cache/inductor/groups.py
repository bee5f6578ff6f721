"""Process groups in compiled code: fixed-width places, into which a load writes the group names of this process.

AOTInductor writes the name of a group into the code of a graph (`all_reduce`, which has a C interface) or into the
accompanying description of calls (all other collectives). Since names are written at the load, one object serves groups
of any name.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence

from gearcache.ge_cache.inductor.executable import in_memory
from gearcache.ge_cache.process_groups import role

#: Bytes of a name in code, with the terminating zero. Torch's names are numbers and hashes of at most 64 digits.
WIDTH = 128


def place(number: int) -> str:
    """Return the placeholder name in compiled code for the group of a number."""
    return role(number).ljust(WIDTH, "-")


def with_names(library: bytes, names: Sequence[str]) -> bytes:
    """Return a shared object that communicates in groups of these names; `ValueError` for one that is too long."""
    for number, name in enumerate(names):
        encoded = name.encode()
        if len(encoded) >= WIDTH or b"\0" in encoded:
            raise ValueError(f"the name of the process group {name!r} has more than {WIDTH - 1} bytes")
        library = library.replace(place(number).encode(), encoded.ljust(WIDTH, b"\0"))
    return library


def described_with_names(extern: bytes, names: Sequence[str]) -> bytes:
    """Return the description of calls that communicates in groups of these names."""
    for number, name in enumerate(names):
        extern = extern.replace(json.dumps(place(number)).encode(), json.dumps(name).encode())
    return extern


@contextlib.contextmanager
def library_file(library: bytes) -> Iterator[str]:
    """Yield the name of a file that holds a shared object."""
    descriptor = in_memory(library)
    try:
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)
