"""Checks that the key pairs named in the environment can be used on this host."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec

from gearcache.cache.admin.health import HealthCheck
from gearcache.cache.remote.trust import Trust
from gearcache.cache.signatures.key_pair import MISSING_PACKAGE, SIGNING_KEY_VARIABLE, fingerprint
from gearcache.cache.signatures.trusted_keys import TRUSTED_KEYS_VARIABLE
from gearcache.errors import CacheError, OptionError, UnsafePath


def check_keys(environ: Mapping[str, str]) -> HealthCheck:
    """Read the trusted keys and the private key of this host. Never raises."""
    try:
        trust = Trust.from_environment(environ)
        if not trust.keys and trust.signing_key is None:
            detail = f"none (`{TRUSTED_KEYS_VARIABLE}` and `{SIGNING_KEY_VARIABLE}` are not set)"
            return HealthCheck("keys", None, detail)
        if find_spec("cryptography") is None:
            return HealthCheck("keys", False, MISSING_PACKAGE, "install it, or unset the variables of keys")
        own = trust.signing_key.public_key if trust.signing_key is not None else None
    except UnsafePath as error:
        return HealthCheck("keys", False, f"`{error.path}`: {error.reason}", error.remedy)
    except (OptionError, CacheError) as error:
        return HealthCheck("keys", False, str(error), "see the message")
    names = ", ".join(f"`{key.name}`{f' {key.time_text}' if key.has_time else ''}" for key in trust.keys)
    detail = f"trusts {names or 'none'}"
    if own is None:
        return HealthCheck("keys", True, f"{detail}; signs nothing")
    key = next((key for key in trust.keys if key.public_key == own), None)
    detail += f"; signs as `{key.name}`" if key is not None else f"; signs with {fingerprint(own)}, which is not listed"
    if key is not None and not key.covers(time.time()):
        remedy = f"`gearcache keys new` makes another key; add its line to `{TRUSTED_KEYS_VARIABLE}` of all hosts"
        return HealthCheck("keys", False, f"{detail}, {key.time_text} only: what it compiles now is refused", remedy)
    return HealthCheck("keys", True, detail)
