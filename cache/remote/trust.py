"""Check the signatures of manifests that arrive from other hosts, and sign manifests sent there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from gearcache.cache.manifest import decode_manifest, signed_parts
from gearcache.cache.signatures.key_pair import SIGNING_KEY_VARIABLE, SigningKey, fingerprint, has_signed
from gearcache.cache.signatures.signature import KEY_FILE_VARIABLE, Signer
from gearcache.cache.signatures.trailer import Signed
from gearcache.cache.signatures.trusted_keys import (
    HMAC_NAME,
    TRUSTED_KEYS_VARIABLE,
    TrustedKey,
    moment_text,
    trusted_keys,
)
from gearcache.errors import CacheError, UnsignedEntry

#: The name of this host's key where it has none; other names of keys hold no blank.
OWN_NAME = "this host"
State = Literal["good", "unknown", "wrong"]


class Signature(Struct, frozen=True):
    """One signature of a manifest, as this host sees it.

    `state` is `good` for a trusted signature, and `unknown` where this host does not have the key. It is `wrong` where
    the signature does not fit, cannot be checked, or is from a time for which the key is not trusted. `problem` and
    `remedy` say why, and how to fix it.
    """

    kind: Literal["ed25519", "hmac"]
    state: State
    #: Of a trusted public key, `this host`, or `hmac`; empty where the key has no name.
    name: str = ""
    #: The fingerprint of a public key.
    fingerprint: str = ""
    problem: str = ""
    remedy: str = ""


class Trust:
    """The signatures that a manifest from a tier must carry.

    `keys` and `hmac` check, `signing_key` and `hmac` sign; signatures of the own `signing_key` are accepted too. The
    files of the last two are read at their first use, which may raise `UnsafePath`. Safe to use from several threads.
    """

    def __init__(
        self, keys: Iterable[TrustedKey] = (), hmac: Signer | None = None, signing_key: SigningKey | None = None
    ) -> None:
        self.keys = tuple(keys)
        self.hmac = hmac
        self.signing_key = signing_key

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Trust:
        """Return the trust of `$GEARCACHE_TRUSTED_KEYS` and `$GEARCACHE_HMAC_KEY_FILE`, and the keys with which this
        host signs.

        `OptionError` names the variable, its value and what is allowed; `UnsafePath` for a file of trusted keys that
        others may have changed.
        """
        key_file, signing_file = environ.get(KEY_FILE_VARIABLE), environ.get(SIGNING_KEY_VARIABLE)
        return cls(
            trusted_keys(environ),
            Signer(Path(key_file)) if key_file else None,
            SigningKey(Path(signing_file)) if signing_file else None,
        )

    @property
    def asks(self) -> bool:
        """Return whether this host has a key to check signatures."""
        return bool(self.keys) or self.hmac is not None

    @property
    def signs(self) -> bool:
        """Whether this host signs what it stores and sends, and so vouches for it."""
        return self.signing_key is not None or self.hmac is not None

    def check(self, data: bytes, source: str, *, unsigned: bool = False) -> str:
        """Return the signer of a manifest that `decode_manifest` accepts: `hmac`, or the name of a public key.

        The name is that of a trusted key, or `this host`. One valid signature is enough. Raises `UnsignedEntry` with
        the reason where none is valid. With `unsigned`, on a host that does not sign itself, the result is empty for a
        manifest without signatures, or with signatures of unknown keys only; a wrong signature is still refused.
        `source` names the manifest in messages. The signed `key_digest` says which entry the manifest belongs to: the
        caller compares it with the key that it looks for.
        """
        refused_signatures = []
        for signature in self.signatures(data, source):
            if signature.state == "good":
                return signature.name
            refused_signatures.append(signature)
        wrong = [signature for signature in refused_signatures if signature.state == "wrong"]
        if unsigned and not wrong and not self.signs:
            return ""
        if not refused_signatures and unsigned:
            remedy = (
                "a host with a key signs what it stores, so it takes nothing that nobody signed, from a tier with "
                f"`unsigned=1` neither: push it again from a host that signs, or unset `{SIGNING_KEY_VARIABLE}` and "
                f"`{KEY_FILE_VARIABLE}` here"
            )
            raise UnsignedEntry(source, "it is not signed", remedy)
        if not refused_signatures:
            remedy = (
                f"set `{SIGNING_KEY_VARIABLE}` where it is compiled and push it again, or write `unsigned=1` behind "
                "the URL of a tier if all who can write there may run code as you"
            )
            raise UnsignedEntry(source, "it is not signed", remedy)
        refused_signatures = wrong or refused_signatures
        raise UnsignedEntry(
            source, ", and ".join(signature.problem for signature in refused_signatures), refused_signatures[0].remedy
        )

    def signatures(self, data: bytes, source: str) -> Iterator[Signature]:
        """Yield the signatures of a manifest; first the HMAC, which needs no package."""
        parts = signed_parts(data)
        if parts.hmac:
            yield self._hmac_signature(data)
        if parts.public_key:
            yield self._pair_signature(parts, source)

    def local_problem(self, data: bytes, source: str) -> Signature | None:
        """Return the problem of the key-pair signature of an entry in this host's own cache, where its key is known.

        Such an entry needs no signature. Its HMAC does not vouch for it, as this host may have added the HMAC at a
        fetch.
        """
        parts = signed_parts(data)
        if not parts.public_key:
            return None
        signature = self._pair_signature(parts, source)
        return signature if signature.state == "wrong" or (self.keys and signature.state == "unknown") else None

    def own_signed(self, data: bytes) -> bytes:
        """Return a manifest of this host's cache, `signed`; `UnsignedEntry` for one that this host itself refuses.

        With an HMAC key a host loads only entries with its HMAC: another one would vouch for whoever wrote the file.
        """
        if self.hmac is not None and not self.hmac.has_signed(data):
            name = decode_manifest(signed_parts(data).manifest, Path("manifest")).name
            remedy = f"this host does not load it either: let it be compiled again (`gearcache clear --entry {name}`)"
            raise UnsignedEntry(name, f"it is not signed with the key of `{KEY_FILE_VARIABLE}`", remedy)
        return self.signed(data)

    def signed(self, data: bytes) -> bytes:
        """Return a manifest with the signatures that this host can add to the existing ones.

        A key-pair signature always stays: signing again would vouch for code that another host compiled. An HMAC that
        this host cannot make stays while the bytes that it covers are unchanged. Raises `UnsignedEntry` on a host that
        signs, for a manifest with a key-pair signature that this host does not trust and without its own HMAC;
        `CacheError` where a key cannot be used.
        """
        parts = signed_parts(data)
        if not self.signs:
            return data
        if not parts.public_key:
            pair = self.signing_key.trailer(parts.manifest) if self.signing_key is not None else b""
        elif self._untrusted(data, parts):
            return data
        else:
            pair = parts.pair
        body = parts.manifest + pair
        if self.hmac is not None:
            return body + self.hmac.signature(body)
        return body + parts.hmac if pair == parts.pair else body

    def _untrusted(self, data: bytes, parts: Signed) -> bool:
        """Return whether only this host's HMAC vouches for a manifest signed by key pair; raises where neither does."""
        signature = self._pair_signature(parts, "manifest")
        if signature.state == "good":
            return False
        if parts.hmac and self.hmac is not None and self.hmac.has_signed(data):
            return True
        if self.signing_key is not None:
            _ = self.signing_key.public_key  # an unreadable key is reported, rather than the manifest
        name = decode_manifest(parts.manifest, Path("manifest")).name
        remedy = (
            "this host does not sign it in the place of who did: let it be compiled again here (`gearcache clear "
            f"--entry {name}` removes it), or, if you trust that key, list it in `{TRUSTED_KEYS_VARIABLE}`"
        )
        raise UnsignedEntry(name, signature.problem, remedy)

    def missing_keys(self, data: bytes) -> list[str]:
        """Return the variables of the keys that this host lacks to renew the kinds of signatures of a manifest."""
        parts = signed_parts(data)
        pair = [SIGNING_KEY_VARIABLE] if parts.public_key and self.signing_key is None else []
        return pair + ([KEY_FILE_VARIABLE] if parts.hmac and self.hmac is None else [])

    def _hmac_signature(self, data: bytes) -> Signature:
        if self.hmac is None:
            problem = f"it has an HMAC, and `{KEY_FILE_VARIABLE}` is not set"
            return Signature("hmac", "unknown", problem=problem, remedy="set it to the file of the key that signed it")
        if self.hmac.has_signed(data):
            return Signature("hmac", "good", HMAC_NAME)
        problem = f"it is not signed with the key of `{KEY_FILE_VARIABLE}`"
        return Signature("hmac", "unknown", problem=problem, remedy="push it again from a host that has this key")

    def _pair_signature(self, parts: Signed, source: str) -> Signature:
        key_fingerprint = fingerprint(parts.public_key)
        key = next((key for key in self.keys if key.public_key == parts.public_key), None) or self._own_key(parts)
        if key is None:
            lists = "does not list" if self.keys else "is not set, which would list"
            problem = f"it is signed by the key {key_fingerprint}, and `{TRUSTED_KEYS_VARIABLE}` {lists} it"
            remedy = "add that key if you trust who signs with it: `gearcache keys list` prints it on that host"
            return Signature("ed25519", "unknown", "", key_fingerprint, problem, remedy)
        problem = remedy = ""
        try:
            if not has_signed(parts.public_key, parts.signature, parts.manifest):
                problem = f"the signature by `{key.name}` ({key_fingerprint}) does not fit its bytes"
                remedy = "it was changed or damaged after it was signed: delete it, and push it again"
        except CacheError as error:
            problem, remedy = f"the signature by `{key.name}` ({key_fingerprint}) cannot be checked", str(error)
        if not problem and key.has_time:
            created = decode_manifest(parts.manifest, Path(source)).created
            if not key.covers(created):
                statement = f"`{key.name}` ({key_fingerprint}) is trusted for entries {key.time_text}"
                problem = f"{statement}, not of {moment_text(created)}"
                remedy = f"let it be compiled again, or change the time of the key in `{TRUSTED_KEYS_VARIABLE}`"
        return Signature("ed25519", "wrong" if problem else "good", key.name, key_fingerprint, problem, remedy)

    def _own_key(self, parts: Signed) -> TrustedKey | None:
        """Return this host's key, where it has signed: a host with the private key need not list the public one."""
        try:
            is_own = self.signing_key is not None and self.signing_key.public_key == parts.public_key
        except CacheError:  # reported at signing
            return None
        return TrustedKey(OWN_NAME, parts.public_key) if is_own else None
