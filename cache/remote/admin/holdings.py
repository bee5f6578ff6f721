"""List the objects of a whole tier by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct, field

from gearcache.cache.layout import is_digest
from gearcache.cache.remote.engines.protocol import Deadline, Remote, RemoteError
from gearcache.cache.remote.engines.web import INDEX, MAX_INDEX
from gearcache.cache.remote.lookup import MAX_SIZE
from gearcache.cache.remote.names import BLOBS, ENTRIES, EntryName, parse_name
from gearcache.cache.remote.requests.parallel import at_once, read_each
from gearcache.cache.remote.tier import Tier

#: Seconds that a list, or several requests at once, may take in a command.
SECONDS = 60.0
#: After this many faults in a row a command skips a tier.
MOST_FAULTS = 3
#: Limit of listed names; a tier with more objects is not listed as a whole.
MOST_NAMES = 1 << 20
_MIN_DIGEST_PREFIX = 4


class Holdings(Struct):
    """The names of the manifests in a tier, by entry, and of the files that list them for a web server."""

    manifests: dict[EntryName, list[str]] = field(default_factory=dict)
    indexes: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """All manifests, in their order."""
        return sorted(name for names in self.manifests.values() for name in names)

    def called(self, text: str) -> list[EntryName]:
        """Return the entries of a method, a pattern with `*`, a key or its start, or `<method>-<start of the key>`."""
        return [entry for entry in self.manifests if is_called(entry, text)]


def is_called(entry: EntryName, text: str) -> bool:
    """Whether an entry has a name that users may write."""
    if fnmatchcase(entry.label, text):
        return True
    label, _, digest = text.rpartition("-")
    return label in ("", entry.label) and len(digest) >= _MIN_DIGEST_PREFIX and entry.digest.startswith(digest)


def holdings(tier: Tier, deadline: Deadline) -> Holdings:
    """List the manifests of a tier; `RemoteError`, also for a website without a list of them."""
    result = Holdings()
    for name in _names(tier, ENTRIES, deadline):
        if (entry := parse_name(name)) is not None:
            result.manifests.setdefault(entry, []).append(name)
        elif name.rpartition("/")[2] == INDEX:
            result.indexes.append(name)
    if not result.manifests and tier.url.scheme in ("http", "https"):
        index = ENTRIES + INDEX
        if tier.ask(lambda remote: remote.get(index, MAX_INDEX, deadline)) is None:
            raise RemoteError(tier.label, f"it has no `{index}`, which `gearcache push --index` writes")
    return result


def read_manifests(tier: Tier, names: Sequence[str]) -> tuple[dict[str, bytes], dict[str, RemoteError]]:
    """Return the bytes of manifests by name, without removed ones, and the errors of those that cannot be read.

    Several are read at once. Raises `RemoteError` where none can be read.
    """
    if not names:
        return {}, {}
    deadline = Deadline.after(SECONDS + len(names))
    return tier.ask(lambda remote: read_each(remote, names, MAX_SIZE, deadline))


def blobs(tier: Tier, deadline: Deadline) -> list[str]:
    """List the digests of the blobs of a tier; `RemoteError`."""
    digests = (name.rpartition("/")[2] for name in _names(tier, BLOBS, deadline))
    return sorted(digest for digest in digests if is_digest(digest))


def write_index(tier: Tier) -> int:
    """Write the files in which a web server lists all entries, those of each method, and the folder of each one.

    Returns how many changed. Nothing else in a tier changes: a reader sees the old or the new file. Of several hosts
    that write them at once, the last one may not know what the others have stored.
    """
    contents = holdings(tier, Deadline.after(SECONDS))
    texts = {ENTRIES + INDEX: _text(ENTRIES, contents.names)}
    for prefix in {entry.method_prefix for entry in contents.manifests}:
        texts[prefix + INDEX] = _text(prefix, (name for name in contents.names if name.startswith(prefix)))
    for entry in contents.manifests:
        names = contents.manifests[entry] if entry.ranks else _of_all_ranks(contents.manifests, entry)
        texts[entry.prefix + INDEX] = _text(entry.prefix, names)
    stale_names = [name for name in contents.indexes if name not in texts]
    deadline = Deadline.after(SECONDS + len(texts) + len(stale_names))

    def write_all(remote: Remote) -> int:
        def write(name: str) -> bool:
            if remote.get(name, MAX_INDEX, deadline) == texts[name]:
                return False
            return remote.put(name, texts[name], deadline)

        changed_count = sum(at_once(write, sorted(texts)))
        at_once(lambda name: remote.delete(name, deadline), stale_names)
        return changed_count + len(stale_names)

    return tier.write(write_all)


def _of_all_ranks(manifests: Mapping[EntryName, list[str]], entry: EntryName) -> list[str]:
    return [name for other, names in manifests.items() for name in names if other.prefix.startswith(entry.prefix)]


def _text(prefix: str, names: Iterable[str]) -> bytes:
    return "".join(f"{name.removeprefix(prefix)}\n" for name in sorted(names)).encode()


def _names(tier: Tier, prefix: str, deadline: Deadline) -> list[str]:
    names = tier.ask(lambda remote: remote.names(prefix, MOST_NAMES, deadline))
    if len(names) >= MOST_NAMES:
        raise RemoteError(tier.label, f"it has more than {MOST_NAMES} objects below `{prefix}`")
    return names
