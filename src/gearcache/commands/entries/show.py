"""`gearcache show`: prints one entry as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.files.trust import read_trusted
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest
from gearcache.cache.remote.trust import Signature
from gearcache.commands.common import (
    ago_text,
    common_options,
    count,
    entry_plain,
    environment_trust,
    layout_at,
    note_other_formats,
    print_json,
    seconds_text,
    size_text,
    user_text,
)
from gearcache.commands.entries.entry_names import entry_argument, find_newest
from gearcache.commands.output.printing import echo
from gearcache.guards.gears.short_names import short_names
from gearcache.readable.entry import key_lines, understood, variants_of
from gearcache.readable.variant import PARTS, evidence_lines, part_lines

_SECTIONS = ("key", *PARTS)
_SUMMARY = ("key", "inputs", "checks", "sources", "gears")
#: Lines shown per section.
_SHOWN = 12


@click.command("show")
@entry_argument()
@click.option(
    "--only", "only", type=click.Choice(_SECTIONS), multiple=True, help="Show this part, in full. Repeatable."
)
@click.option(
    "--full", is_flag=True, help="Show every part in full: whole names of gears, evidence, frame and graph too."
)
@common_options
def command(entry: str, only: tuple[str, ...], full: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Show one entry: what identifies it, what it depends on, its gears, its frame and graph.

    ENTRY is a method (`Model.decode`), a key or its start, both (`Model.decode-3f2a`), or a path.
    """
    catalog = Catalog(layout_at(cache_dir))
    row = find_newest(catalog, entry)
    manifest = catalog.read(row)
    signatures = list(environment_trust().signatures(read_trusted(catalog.path(row), MAX_MANIFEST_SIZE), entry))
    sections = _SECTIONS if full or as_json else only or _SUMMARY
    limit = None if full or only or as_json else _SHOWN
    with understood(manifest):
        plain = _plain(row, manifest, catalog, signatures) if as_json else {}
        lines = [] if as_json else [*_head(row, catalog, signatures), *_body(manifest, catalog, sections, limit)]
    if as_json:
        print_json("show", plain)
        return
    for line in lines:
        echo(line)
    note_other_formats(catalog.layout)


def _head(entry: EntryRow, catalog: Catalog, signatures: list[Signature]) -> Iterator[str]:
    created = datetime.fromtimestamp(entry.created).astimezone().isoformat(" ", "seconds")
    users = catalog.users(entry)
    yield f"Method    {entry.label}"
    yield f"Key       {entry.digest}"
    yield f"Ranks     {entry.ranks or 'none'}"
    yield f"Path      {catalog.path(entry)}"
    yield f"Created   {created}, with torch {entry.torch or 'of unknown version'}"
    yield f"Signed    {'; '.join(map(_signature_text, signatures)) or 'by nobody'}"
    yield f"Used      {ago_text(entry.last_use)}, {count(entry.hits, 'load')}"
    yield f"In use    {', '.join(map(user_text, users)) or 'by no process'}"
    yield f"Size      {size_text(entry.size)} in {count(len(entry.blob_sizes()), 'blob')}"
    yield f"Compiled  {count(len(entry.gears), 'graph')} in {seconds_text(entry.compile_seconds)}"


def _signature_text(signature: Signature) -> str:
    if signature.problem:
        return signature.problem
    return (
        f"by `{signature.name}` ({signature.fingerprint})"
        if signature.fingerprint
        else "with the HMAC key of this host"
    )


def _body(manifest: Manifest, catalog: Catalog, sections: tuple[str, ...], limit: int | None) -> Iterator[str]:
    if "key" in sections:
        yield from ("", "Key components")
        yield from _indented(list(key_lines(manifest)), limit and 2 * limit, "--only key")
    variants = variants_of(manifest)
    # The full output has the full texts, which programs use to identify gears.
    gear_names = {} if limit is None else short_names(gear["text"] for variant in variants for gear in variant["gears"])
    for number, variant in enumerate(variants):
        if len(variants) > 1:
            yield from ("", f"Variant {number + 1} of {len(variants)}")
        for section in sections:
            if section == "key":
                continue
            for title, lines in part_lines(section, variant, manifest, catalog.layout, gear_names):
                yield from ("", title)
                yield from _indented(lines or ["none"], limit, f"--only {section}")
        if limit is not None:
            number_of_checks = sum(1 for _ in evidence_lines(variant))
            yield from ("", f"Evidence: {count(number_of_checks, 'check')} at each load; --only evidence lists them")


def _indented(lines: list[str], limit: int | None, option: str) -> Iterator[str]:
    shown = lines if limit is None or len(lines) <= limit + 1 else lines[:limit]
    yield from (f"  {line}" for line in shown)
    if len(shown) < len(lines):
        yield f"  … {len(lines) - len(shown)} more lines, see {option}"


def _plain(entry: EntryRow, manifest: Manifest, catalog: Catalog, signatures: list[Signature]) -> dict[str, Any]:
    variants = []
    for variant in variants_of(manifest):
        texts = {part: list(part_lines(part, variant, manifest, catalog.layout)) for part in PARTS}
        drawn = [{"title": title, "lines": lines} for title, lines in texts.pop("graph")]
        variants.append({**{part: lines for part, ((_, lines),) in texts.items()}, "graph": drawn})
    return {
        **entry_plain(entry, catalog),
        "users": list(map(asdict, catalog.users(entry))),
        "signatures": list(map(asdict, signatures)),
        "components": _jsonable(manifest.components),
        "blobs": manifest.blobs,
        "variant_details": variants,
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value
