"""The environment variables that gearcache reads, and names that look like one of them."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gearcache.cache.layout import VARIABLE_PREFIXES

logger = logging.getLogger("gearcache")
#: Variables that click derives from the name of the program.
_OF_OTHERS = {"GEARCACHE_COMPLETE", "_GEARCACHE_COMPLETE"}
#: Warnings about variables that this process has given.
_said: set[str] = set()


class Variable(Struct, frozen=True):
    """One variable: its default and its purpose."""

    name: str
    default: str
    purpose: str


VARIABLES = (
    Variable("TORCHAIR_CACHE_HOME", "./.torchair_cache", "root of the cache"),
    Variable("GEARCACHE_STRICT", "0", "1: faults of the cache raise instead of warning"),
    Variable("GEARCACHE_PROGRESS", "1", "0: builds show neither bar nor line"),
    Variable("GEARCACHE_JOBS", f"{os.cpu_count() or 1} (cores)", "compile processes of one build"),
    Variable("GEARCACHE_COMPILE_TIMEOUT", "3600", "seconds that a compile process may take for a gear"),
    Variable("GEARCACHE_LOCK_TIMEOUT", "1800", "seconds to wait for another process that compiles the same"),
    Variable("GEARCACHE_MAX_SIZE", "10GB", "limit of the cache, or none; the least recently used entries go"),
    Variable("GEARCACHE_MAX_AGE", "none", "entries that nobody used for so long go, as 30d"),
    Variable("GEARCACHE_REMOTES", "none", "tiers beyond this host, as 'redis://cache:6379/0 s3://bucket/team'"),
    Variable("GEARCACHE_HMAC_KEY_FILE", "none", "file of the secret that signs and checks entries"),
    Variable("GEARCACHE_SIGNING_KEY_FILE", "none", "private key of a host that compiles; signs what it stores"),
    Variable("GEARCACHE_TRUSTED_KEYS", "none", "public keys of such hosts, or a file of them"),
    Variable("GEARCACHE_TRUSTED_FOLDERS", "none", "folders that are trusted although others can write there"),
    Variable("GEARCACHE_WHOLE_TORCHAIR", "0", "1: a relaunch on an NPU imports all of torchair, with Dynamo"),
    Variable("GEARCACHE_TRACE", "none", "file to write how this process starts to, and its calls; %p is its number"),
)


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables with a prefix of gearcache's that nothing reads, each with the nearest known name."""
    names = [variable.name for variable in VARIABLES]
    unknown = [
        name for name in sorted(environ) if name.startswith(VARIABLE_PREFIXES) and name not in {*names, *_OF_OTHERS}
    ]
    return {name: next(iter(difflib.get_close_matches(name, names, 1)), None) for name in unknown}


def told(name: str, meant: str | None) -> str:
    """Return the sentence for a variable that nothing reads."""
    return f"nothing reads `{name}`" + (f"; `{meant}` is meant?" if meant else "")


def tell_once(wrong: Iterable[str], environ: Mapping[str, str]) -> None:
    """Warn, once in a process, of variables with wrong values, and of those that nothing reads."""
    texts = [f"{text}; the default is used" for text in wrong]
    for text in (*texts, *(told(*each) for each in unknown_variables(environ).items())):
        if text not in _said:
            _said.add(text)
            logger.warning("%s", text)
