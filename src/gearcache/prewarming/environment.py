"""Changes what the process sees of its environment for a while: variables, and the folder of temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process, and restore them afterwards."""
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def with_temporary_name() -> Iterator[None]:
    """Name a temporary folder even if none can be written, as with a read-only root without a volume at /tmp.

    Imports of torch ask for the name. Code that writes there gets the error of the disk; other code only needs the
    name.
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
