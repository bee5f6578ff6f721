"""The page of a report: one HTML file that asks for nothing else.

What stands in it comes from manifests and traces of others. The template escapes it; the rest lies packed in the page,
and the script makes texts of it, never markup. A policy in the page lets only this script and these styles run.
"""

from __future__ import annotations

import base64
import json
import zlib
from datetime import datetime, timezone
from hashlib import sha256
from importlib.resources import files
from typing import Any

from gearcache.cache.quantities import size_text
from gearcache.commands.common import seconds_text


def page(document: dict[str, Any]) -> str:
    """Return the page of a report; `ImportError` where jinja2 is missing."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("the page needs jinja2: pip install 'gearcache[report]'; `--json` does not") from error
    style, script, template = (_text(name) for name in ("page.css", "page.js", "page.html.jinja"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(size=size_text, seconds=_seconds, moment=_moment, percent=_percent, pointer=_pointer)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    found: str = environment.from_string(template).render(
        **document, document=document, style=style, script=script, policy=policy, packed=packed(document)
    )
    return found


def packed(document: dict[str, Any]) -> str:
    """Return a document as the page carries it: JSON, deflated, in letters that no markup has."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> Any:
    """Return the document again."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _text(name: str) -> str:
    return files("gearcache.reporting").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _moment(seconds: float) -> str:
    if not seconds:
        return "-"
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):  # of a file that somebody has dated so
        return "no date"


def _seconds(seconds: float) -> str:
    """Return a duration as the script writes it: one number has one form in the page."""
    if 0 < seconds < 1:
        return f"{1000 * seconds:.{2 if seconds < 0.01 else 0}f} ms"
    return seconds_text(seconds)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _pointer(steps: list[str | int]) -> str:
    """Return where a number stands in the JSON document, as RFC 6901 writes it."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
