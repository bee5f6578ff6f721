"""`gearcache keys`: makes and lists the key pairs that sign entries."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from gearcache.cache.signatures.key_pair import MISSING_PACKAGE, SIGNING_KEY_VARIABLE, fingerprint, new_key_file
from gearcache.cache.signatures.trusted_keys import TRUSTED_KEYS_VARIABLE, TrustedKey, is_key_name, moment_text
from gearcache.commands.common import environment_trust, json_option, note, print_json
from gearcache.commands.output.listing import Column, Listing
from gearcache.commands.output.printing import echo
from gearcache.commands.output.verbosity import verbosity_options


def _moment(bound: float | None) -> str:
    return "-" if bound is None else moment_text(bound)


_KEYS = Listing(
    (
        Column("Name", "name"),
        Column("Fingerprint", "fingerprint"),
        Column("From", "from", _moment),
        Column("Until", "until", _moment),
        Column("Signs here", "signs_here", lambda here: "yes" if here else "-"),
    )
)


@click.group("keys", no_args_is_help=True)
def command() -> None:
    """Make and list the key pairs that sign entries for other hosts.

    A host that compiles signs with a private key ($GEARCACHE_SIGNING_KEY_FILE); hosts that fetch know the public keys
    of such hosts ($GEARCACHE_TRUSTED_KEYS).
    """


@command.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="What other hosts call the key; else the name of FILE without its ending.")
@json_option
@verbosity_options
def new(file: Path, name: str | None, as_json: bool) -> None:
    """Write a new private key to FILE, and print the line of its public key for $GEARCACHE_TRUSTED_KEYS.

    FILE has mode 0600 and is never overwritten.
    """
    name = name or file.stem
    if not is_key_name(name):
        raise click.UsageError(
            f"--name: a key cannot be called `{name}`; a name is 1 to 64 letters, digits and `._-`, and not `hmac`"
        )
    if find_spec("cryptography") is None:
        raise click.UsageError(MISSING_PACKAGE)
    try:
        key = TrustedKey(name, new_key_file(file))
    except FileExistsError:
        raise click.UsageError(f"there is a file `{file}` already; a key is never overwritten") from None
    if as_json:
        print_json("keys", {"file": str(file), "keys": [_plain(key, is_own=False)]})
        return
    echo(key.text)
    note(f"`{file}` is the private key: set `{SIGNING_KEY_VARIABLE}` to it where entries are compiled")
    note(f"the line is the public key: put it into `{TRUSTED_KEYS_VARIABLE}` where entries are fetched")


@command.command("list")
@json_option
@verbosity_options
def list_keys(as_json: bool) -> None:
    """List the public keys that this host trusts, and which one is that of its own private key."""
    trust = environment_trust()
    own = trust.signing_key.public_key if trust.signing_key is not None else None
    signer = next((key.name for key in trust.keys if key.public_key == own), None)
    keys = [_plain(key, is_own=key.public_key == own) for key in trust.keys]
    if as_json:
        print_json("keys", {"keys": keys, "signing_key": _signing_plain(own, signer)})
        return
    _KEYS.print(keys)
    if not keys:
        note(f"no public key is trusted: `{TRUSTED_KEYS_VARIABLE}` is not set")
    if own is None:
        note(f"this host has no private key: `{SIGNING_KEY_VARIABLE}` is not set")
    elif signer is None:
        line = TrustedKey("NAME", own).text
        note(f"`{TRUSTED_KEYS_VARIABLE}` does not list the key of this host, {fingerprint(own)}: `{line}`")


def _plain(key: TrustedKey, *, is_own: bool) -> dict[str, Any]:
    return {
        "name": key.name,
        "fingerprint": key.fingerprint,
        "line": key.text,
        "from": key.start,
        "until": key.end,
        "signs_here": is_own,
    }


def _signing_plain(public_key: bytes | None, name: str | None) -> dict[str, Any] | None:
    if public_key is None:
        return None
    return {"name": name, "fingerprint": fingerprint(public_key), "line": TrustedKey(name or "NAME", public_key).text}
