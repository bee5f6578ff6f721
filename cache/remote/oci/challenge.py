"""What a registry asks for with status 401: name and password, or a token from another server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

MAX_ANSWER_SIZE = 1 << 20
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)


@dataclass(frozen=True)
class Challenge:
    """`realm` is the address of the server that gives tokens for a `service`; it is empty for name and password."""

    realm: str = ""
    service: str = ""
    scope: str = ""

    def address(self, scope: str) -> str:
        """Return the address to ask for a token, for what is wanted here if the registry does not say."""
        query = {name: text for name, text in (("service", self.service), ("scope", self.scope or scope)) if text}
        mark = "&" if urlsplit(self.realm).query else "?"
        return f"{self.realm}{mark}{urlencode(query)}"

    def exchange(self, identity: str, scope: str) -> bytes:
        """Return the form that asks for a token with one that `docker login` stored."""
        form = {"grant_type": "refresh_token", "client_id": "gearcache", "refresh_token": identity}
        return urlencode({**form, "service": self.service, "scope": self.scope or scope}).encode()


def read_challenge(headers: list[str]) -> Challenge | None:
    """Return what `WWW-Authenticate` asks for; None for what is not known here."""
    for header in headers:
        kind, _, rest = header.strip().partition(" ")
        if kind.lower() == "bearer":
            found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
            if found.get("realm"):
                return Challenge(found["realm"], found.get("service", ""), found.get("scope", ""))
    return Challenge() if any(header.strip().lower().startswith("basic") for header in headers) else None


def read_token(data: bytes) -> str:
    """Return the token of an answer; `ValueError` where there is none that can be sent."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    tokens = [found.get(name) for name in ("token", "access_token")] if isinstance(found, Mapping) else []
    for token in tokens:
        if isinstance(token, str) and _TOKEN.fullmatch(token):
            return token
    raise ValueError("it gives no token")
