"""JSON for programs: one document per command, described by `docs/commands.schema.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import click

from gearcache.commands.output.printing import printable_json

#: Incremented when a field is removed or changes its meaning; new fields may be added without it.
SCHEMA_VERSION = 1
_INDENTED_ITEMS = 100


def print_json(command: str, fields: Mapping[str, Any]) -> None:
    """Print the document of a command, indented; a long list has one item per line: `indent` is slow for 100,000.

    JSON has no NaN and no infinity: such numbers, which a key may contain, are printed as texts.
    """
    document = {"schema": SCHEMA_VERSION, "command": command, **fields}
    try:
        text = _json(document)
    except ValueError:
        text = _json(finite(document))
    click.echo(printable_json(text))


def _json(document: Mapping[str, Any]) -> str:
    if not any(isinstance(value, list) and len(value) > _INDENTED_ITEMS for value in document.values()):
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    fields = [f"{json.dumps(name, ensure_ascii=False)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(fields) + "\n}"


def _value(value: Any) -> str:
    if isinstance(value, list) and len(value) > _INDENTED_ITEMS:
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False, allow_nan=False) for item in value) + "\n]"
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """Return JSON data with texts in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
