"""JSON for programs: one document per command, described by `docs/commands.schema.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import click

#: Incremented when a field is removed or changes its meaning; new fields may be added without it.
SCHEMA_VERSION = 1


def print_json(command: str, fields: Mapping[str, Any]) -> None:
    """Print the document of a command, indented, in ASCII: no text in it can control the terminal.

    JSON has no NaN and no infinity: such numbers, which a key may contain, are printed as texts.
    """
    document = {"schema": SCHEMA_VERSION, "command": command, **fields}
    try:
        text = json.dumps(document, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), indent=2)
    click.echo(text)


def _finite(value: Any) -> Any:
    """Return JSON data with texts in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
