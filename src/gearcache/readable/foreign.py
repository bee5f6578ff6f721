"""Recognises cache files of torchair and npugraph_ex without unpickling them."""

from __future__ import annotations

from pathlib import Path

#: The name of the first class in such a pickle is within its first bytes.
_HEAD = 256
_CLASSES = {
    b"npugraph_ex.inference._cache_compiler": "npugraph_ex",
    b"torchair.inference._cache_compiler": "torchair",
}


def check_foreign(path: Path) -> None:
    """Raise `ValueError` for a cache file that torchair or npugraph_ex wrote (`compiled_module`); opens no pickle."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return
    for name, package in _CLASSES.items():
        if name in head:
            raise ValueError(
                f"readable_cache: `{path}` is a cache file of {package}'s own, which gearcache neither reads nor uses; "
                "give `entry_path` of the cached method, or read the file with "
                f"{package}.inference.readable_cache in a process without gearcache.compat.torchair.install()"
            )
