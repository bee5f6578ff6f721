"""What the process is told of its surroundings, for a while: variables, and where temporary files would go."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def with_variables(own: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process, and put back what they were before."""
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def with_temporary_name() -> Iterator[None]:
    """Name a temporary folder also where none can be written, as with a read-only root without a volume at /tmp.

    Imports of torch ask for the name. Who writes there gets the error of the disk, and who only looks does not write.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.environ.get("TMPDIR") or "/tmp"
        try:
            yield
        finally:
            tempfile.tempdir = None  # a volume may be mounted later
    else:
        yield
