"""Shows a stored entry as text for people: its identity, what it depends on, its frames and its graphs.

Needs no torch, runs nothing of the entry, and changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from gearcache.cache.files.atomic import regular_target, write_atomic
from gearcache.cache.files.trust import read_trusted
from gearcache.cache.layout import MANIFEST_NAME, Layout
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, decode_manifest
from gearcache.errors import CacheError
from gearcache.guards.dispatch.stored.stored_rows import SHARED_PARTS
from gearcache.readable.variant import PARTS, cut, part_lines

#: A list longer than this is shown item by item.
_LINE_LIMIT = 100
#: The name of the first class in such a pickle is within its first bytes.
_HEAD = 256
_CLASSES = {
    b"npugraph_ex.inference._cache_compiler": "npugraph_ex",
    b"torchair.inference._cache_compiler": "torchair",
}


def readable_cache(
    path: str | os.PathLike[str], print_output: bool = True, file: str | os.PathLike[str] | None = None
) -> str:
    """Return a stored entry as text: its key, evidence, frames and graphs.

    `path` is a manifest (`CachedMethod.entry_path`) or its folder. `print_output` prints the text to stdout; `file` is
    a path to write it to, readable by its owner only. `ValueError` if there is no entry, `CacheError` for one that is
    damaged, of another format version, or not trusted.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"readable_cache: path is {path!r}; it must be a str or a path, as `CachedMethod.entry_path`")
    entry_path = Path(path)
    manifest_path = entry_path / MANIFEST_NAME if entry_path.is_dir() else entry_path
    if manifest_path.is_symlink():
        raise ValueError(f"readable_cache: `{manifest_path}` is a symbolic link; give the file that it points to")
    if not manifest_path.is_file():
        raise ValueError(f"readable_cache: there is no entry at `{manifest_path}`")
    _check_foreign(manifest_path)
    manifest = decode_manifest(read_trusted(manifest_path, MAX_MANIFEST_SIZE), manifest_path)
    with understood(manifest):
        text = "".join(f"{line}\n" for line in entry_lines(manifest, layout_of(manifest_path)))
    if file is not None:
        write_atomic(regular_target(Path(file)), text.encode())
    if print_output:
        sys.stdout.write(text)
    return text


def _check_foreign(path: Path) -> None:
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


def layout_of(manifest_path: Path) -> Layout:
    """Return the layout of the cache that contains a manifest; `ValueError` for one outside any cache."""
    for parent in manifest_path.absolute().parents:
        if parent.name == "entries":
            layout = Layout(parent.parent.parent)
            if layout.entries_folder == parent:
                return layout
            raise ValueError(f"`{manifest_path}` is of another format: its folder is `{parent.parent.name}`")
    raise ValueError(f"`{manifest_path}` is no manifest of a cache: no folder `entries` is above it")


def entry_lines(manifest: Manifest, layout: Layout) -> Iterator[str]:
    """Yield the whole text."""
    created = datetime.fromtimestamp(manifest.created).astimezone().isoformat(" ", "seconds")
    yield f"entry    {manifest.name}"
    yield f"created  {created}"
    yield from (f"{name:<8} {value}" for name, value in manifest.producer.items() if not isinstance(value, list))
    yield ""
    yield "key"
    yield from (f"  {line}" for line in key_lines(manifest))
    for number, variant in enumerate(variants_of(manifest)):
        yield ""
        yield f"variant {number}"
        for part in PARTS:
            for title, lines in part_lines(part, variant, manifest, layout):
                if lines:
                    yield from (f"  {title}", *(f"    {line}" for line in lines))


def key_lines(manifest: Manifest) -> Iterator[str]:
    """Yield the components of the key, one leaf per line."""
    for component, value in manifest.components.items():
        yield from (f"{component}{path} = {leaf}" for path, leaf in _leaves(value))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _leaves(child, f"{path}.{name}")
    elif isinstance(value, (list, tuple)) and (
        any(isinstance(child, (list, tuple, dict)) for child in value) or len(repr(value)) > _LINE_LIMIT
    ):
        for index, child in enumerate(value):
            yield from (
                _leaves(child, f"{path}[{index}]") if isinstance(child, dict) else [(f"{path}[{index}]", cut(child))]
            )
    else:
        yield path, cut(value)


def variants_of(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the variants as plain data; `CacheError` for a payload of an unknown form."""
    payload: Mapping[str, Any] = manifest.payload
    with understood(manifest):
        parts = payload["parts"]
        return [
            {name: parts[value] if name in SHARED_PARTS else value for name, value in variant.items()}
            for variant in payload["variants"]
        ]


@contextmanager
def understood(manifest: Manifest) -> Iterator[None]:
    """Read a payload whose digest is right but whose form is not known to be; errors become `CacheError`."""
    try:
        yield
    except CacheError:
        raise
    except Exception as error:
        raise CacheError(
            f"the variants of `{manifest.name}` cannot be read: {type(error).__name__}: {error}"
        ) from error
