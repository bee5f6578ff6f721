"""The page of a report: one HTML file without scripts, which loads nothing else.

Its content is from manifests and traces of others. The template escapes all of it, and a policy in the page allows no
scripts and only its own styles.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timezone
from hashlib import sha256
from importlib.resources import files
from typing import Any

from msgspec import Struct, field

from gearcache.cache.quantities import size_text
from gearcache.commands.output.listing import percent
from gearcache.reporting.safe_texts import duration_text

#: The most rows of a table, methods, and reasons of misses on the page; `--json` has all.
ROWS, METHODS, REASONS = 12, 200, 200
_LONG_GEAR = 160


def page(document: dict[str, Any]) -> str:
    """Return the page of a report; `ImportError` if jinja2 is not installed."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("the page needs jinja2: pip install 'gearcache[report]'; `--json` does not") from error
    style, template = _text("page.css"), _text("page.html.jinja")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        size=size_text,
        seconds=duration_text,
        moment=_moment,
        percent=percent,
        gear=_gear,
        raw=_is_raw,
    )
    environment.globals.update(count=_count)
    policy = f"default-src 'none'; style-src 'sha256-{_digest(style)}'; base-uri 'none'; form-action 'none'"
    limits = {"rows": ROWS, "methods": METHODS, "reasons": REASONS}
    entries_by_label: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in document["entries"]:
        entries_by_label[entry["label"]].append(entry)
    html: str = environment.from_string(template).render(
        **document,
        style=style,
        policy=policy,
        most=limits,
        entries_by_label=entries_by_label,
        missed=_collect_misses(document)[:REASONS],
    )
    return html


def _text(name: str) -> str:
    return files("gearcache.reporting").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(sha256(text.encode()).digest()).decode()


class Missed(Struct):
    """The misses of a method for one reason: how many were counted, and the recorded ones."""

    method: str
    reason: str
    counted: int | None = None
    recorded: list[dict[str, Any]] = field(default_factory=list)


def _collect_misses(document: Mapping[str, Any]) -> list[Missed]:
    """Return the misses by method and reason; a key that differs from the nearest entry counts as an absent entry."""
    misses: dict[tuple[str, str], Missed] = {}
    for miss in document["misses"]:
        reason = "absent" if miss["kind"] == "key" else miss["kind"]
        misses.setdefault((miss["method"], reason), Missed(miss["method"], reason)).recorded.append(miss)
    for method in document["methods"]:
        for reason, number in method["misses_by_reason"].items():
            misses.setdefault((method["method"], reason), Missed(method["method"], reason)).counted = number
    return list(misses.values())


def _moment(seconds: float) -> str:
    if not seconds:
        return "-"
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):  # the file contains an invalid time
        return "no date"


def _count(number: int, singular: str, plural: str = "") -> str:
    """Return the singular or the plural, depending on a number."""
    return singular if number == 1 else plural or f"{singular}s"


def _gear(text: str, names: Mapping[str, str]) -> str:
    """Return a gear by its short name; the middle of a very long name is cut out."""
    name = names.get(text, text)
    return name if len(name) <= _LONG_GEAR else f"{name[:80]} … {name[-70:]}"


def _is_raw(text: str) -> bool:
    """Whether a value of a key is a list or a table of its parts, which means nothing to a reader."""
    return text[:1] in ("[", "(", "{")
