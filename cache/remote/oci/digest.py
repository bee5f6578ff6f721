"""Digests as images write them: `sha256:<64 hex>`, the only kind that is read."""

from __future__ import annotations

from hashlib import sha256

_KIND = "sha256:"


def digest_of(data: bytes) -> str:
    """Return the digest of some bytes."""
    return _KIND + sha256(data).hexdigest()


def is_image_digest(text: str) -> bool:
    """Whether a text is a digest."""
    return len(text) == len(_KIND) + 64 and text.startswith(_KIND) and not text[len(_KIND) :].strip("0123456789abcdef")
