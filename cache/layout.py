"""The layout: every path of a cache on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from gearcache.cache.keys.key import FORMAT_VERSION, MAX_LABEL_LENGTH, CacheKey
from gearcache.errors import UnsafePath

ROOT_VARIABLE = "TORCHAIR_CACHE_HOME"
REMOTES_VARIABLE = "GEARCACHE_REMOTES"
#: Of all variables; another name with one of them may be a misspelt one.
VARIABLE_PREFIXES = ("GEARCACHE_", "TORCHAIR_CACHE_")
DEFAULT_ROOT = ".torchair_cache"
MANIFEST_NAME = "manifest.msgpack"
#: Folders of an entry where a backend keeps files of its own: GE's compiled graphs, static kernels of aclgraphs.
BACKEND_FOLDERS = ("ge", "static_kernels")
USE_NAME = "use"

_IN_ENTRY = frozenset((MANIFEST_NAME, USE_NAME, *BACKEND_FOLDERS))
_HEXADECIMAL = "0123456789abcdef"
_DIGEST_LENGTH = 64
_MAX_RANKS_LENGTH = 120
_LABEL_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."
_WITHOUT_MARKS = str.maketrans("", "", "_.=-")


def is_digest(text: str) -> bool:
    """Whether a text is a sha256 in lower-case hexadecimal, and so safe in a path."""
    return len(text) == _DIGEST_LENGTH and not text.strip(_HEXADECIMAL)


def is_label(text: str) -> bool:
    """Whether a text is a `CacheKey.safe_label`, and so one folder name."""
    return 0 < len(text) <= MAX_LABEL_LENGTH and text[0] != "." and not text.strip(_LABEL_LETTERS)


def is_ranks_folder(text: str) -> bool:
    """Return whether a text names the folder of some ranks: letters, digits, `_`, and inside also `.`, `=` and `-`.

    No other file in the folder of an entry has such a name.
    """
    if text in _IN_ENTRY:
        return False
    is_name = text.isascii() and text.translate(_WITHOUT_MARKS).isalnum()
    return is_name and text[0] not in ".=-" and len(text) <= _MAX_RANKS_LENGTH


def resolve_root(cache_dir: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path:
    """Return `cache_dir`, else `$TORCHAIR_CACHE_HOME`, else `./.torchair_cache`; absolute, empty means not given.

    In a working folder that was removed there is no absolute path: no file can be made at the relative one either.
    """
    check_root(cache_dir)
    root = os.path.expanduser(os.fspath(cache_dir or "") or environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
    try:
        return Path(os.path.abspath(root))
    except FileNotFoundError:
        return Path(root)


def check_root(cache_dir: str | os.PathLike[str] | None) -> None:
    """Raise `TypeError` or `ValueError` for a value that cannot be the path of a cache."""
    if cache_dir is None:
        return
    if not isinstance(cache_dir, (str, os.PathLike)):
        raise TypeError(f"cache_dir is {cache_dir!r}; it must be a text or a path of text")
    text = os.fspath(cache_dir)
    if not isinstance(text, str):
        raise TypeError(f"cache_dir is {text!r}; it must be a text or a path of text")
    if "\0" in text:
        raise ValueError(f"cache_dir is {text!r}; no path can hold a NUL character")


class Layout(Struct, frozen=True):
    """Every path of a cache root::

        <root>/                               mode 0700: all files are trusted code
          CACHEDIR.TAG  .gitignore            below `v<format>` where the root has other content too
          v<format>/
            entries/<Class.method>/<key digest>/[<ranks>/]
              manifest.msgpack                it alone makes the entry exist
              use                             locked by the processes that loaded it; a byte for each load
            blobs/<2 hex>/<sha256>            immutable, shared by entries, gears and ranks
            locks/<Class.method>-<digest>.lock   one compiler of a key; never unlinked
            locks/store.lock                  shared by writers, exclusive for deleters
            misses/<Class.method>/<reason>    a byte for each miss
            tiers/<digest of its label>       counts of what a tier did for this host
            index/                            can be rebuilt from the manifests
            quarantine/                       what failed verification, with the reason

    Computes paths and creates folders; immutable and safe to share by threads and processes.
    """

    root: Path
    ranks: str = ""

    def __post_init__(self) -> None:
        if self.ranks and not is_ranks_folder(self.ranks):
            raise ValueError(f"ranks are one folder name, got `{self.ranks}`")

    @property
    def bucket(self) -> Path:
        """The folder of this format version."""
        return self.root / f"v{FORMAT_VERSION}"

    @property
    def entries_folder(self) -> Path:
        """The parent of all entries."""
        return self.bucket / "entries"

    @property
    def blobs_folder(self) -> Path:
        """The parent of the blob shards."""
        return self.bucket / "blobs"

    @property
    def locks_folder(self) -> Path:
        """The folder of the locks."""
        return self.bucket / "locks"

    @property
    def index_folder(self) -> Path:
        """The folder of the index."""
        return self.bucket / "index"

    @property
    def quarantine_folder(self) -> Path:
        """The folder of what failed verification."""
        return self.bucket / "quarantine"

    def entry(self, label: str, digest: str, ranks: str) -> Path:
        """Return the folder of an entry; `ValueError` for an invalid label, digest or ranks, which may come from
        outside.
        """
        if not is_label(label) or not is_digest(digest) or (ranks and not is_ranks_folder(ranks)):
            raise ValueError(f"no entry can be called `{label}`, `{digest}`, `{ranks}`")
        return self.entries_folder / label / digest / ranks

    def manifest(self, key: CacheKey) -> Path:
        """Return the manifest path of a key; the entry exists exactly if this file does."""
        return self.entries_folder / key.safe_label / key.digest / self.ranks / MANIFEST_NAME

    def use(self, key: CacheKey) -> Path:
        """Return the file that the processes using an entry lock."""
        return self.manifest(key).with_name(USE_NAME)

    def blob(self, digest: str) -> Path:
        """The file of one blob."""
        if not is_digest(digest):
            raise ValueError(f"a blob is named by its sha256, got `{digest}`")
        return self.blobs_folder / digest[:2] / digest

    def lock(self, name: str) -> Path:
        """The lock of the key of a name (`CacheKey.name`), common to all ranks."""
        return self.locks_folder / f"{name}.lock"

    @property
    def store_lock(self) -> Path:
        """Return the lock that writers share and a deleter holds alone."""
        return self.locks_folder / "store.lock"

    def quarantine(self, name: str) -> Path:
        """Return the quarantine path for a file that failed verification."""
        return self.quarantine_folder / name

    def entries(self, label: str | None = None) -> Iterator[Path]:
        """All manifests, of all ranks, in no order; `label` is a `CacheKey.safe_label`."""
        for stored_label, digest in self.names(label):
            yield from self.manifests_of(stored_label, digest)

    def names(self, label: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield label and key digest of all entries, read lazily; a folder may hold no manifest."""
        for stored_label in self.labels() if label is None else [label]:
            for digest in self.digests(stored_label):
                yield stored_label, digest

    def labels(self) -> list[str]:
        """The labels of all entries."""
        return list(filter(is_label, _names(self.entries_folder)))

    def digests(self, label: str) -> Iterator[str]:
        """The key digests of a label's entries, read lazily."""
        return filter(is_digest, self.digest_names(label))

    def digest_names(self, label: str) -> Iterator[str]:
        """Yield all names in a label's folder: key digests, and any foreign files."""
        return _names(self.entries_folder / label)

    def manifests_of(self, label: str, digest: str) -> Iterator[Path]:
        """The manifests of one key: one, or one for each rank."""
        folder = self.entry(label, digest, "")
        for name in _names(folder):
            if name == MANIFEST_NAME:
                yield folder / name
            elif is_ranks_folder(name):
                yield from (folder / name / inner for inner in _names(folder / name) if inner == MANIFEST_NAME)

    def blobs(self) -> Iterator[Path]:
        """All files in the folders of the blobs, unfinished ones among them."""
        for shard in _names(self.blobs_folder):
            yield from (self.blobs_folder / shard / name for name in _names(self.blobs_folder / shard))

    def identify(self, manifest: Path) -> tuple[str, str, str]:
        """Label, key digest and ranks of a manifest's path; `ValueError` for any other path."""
        parts = manifest.relative_to(self.entries_folder).parts
        if len(parts) not in (3, 4) or parts[-1] != MANIFEST_NAME:
            raise ValueError(f"`{manifest}` is not where a manifest lies")
        return parts[0], parts[1], parts[2] if len(parts) == 4 else ""

    def prepare(self, folder: Path | None = None) -> None:
        """Create the folders that are missing, `folder` below the bucket among them, readable by their owner only.

        Existing folders keep their mode. May run in many processes at once; raises `OSError`, `PublishError`, or
        `UnsafePath` where the root holds a foreign folder with the name of the bucket.
        """
        from gearcache.cache.admin.folder_marks import foreign_name, is_marked, mark
        from gearcache.cache.files.atomic import make_folder

        is_complete = is_marked(self.root, self.bucket)
        # The marks are made last: where they exist, only the folder itself may be missing.
        if is_complete and folder is not None and folder.is_dir():
            return
        if not self.root.exists():
            for parent in reversed(self.root.parents):
                make_folder(parent, 0o755)  # regardless of the umask: others may not write there either
        make_folder(self.root)
        make_folder(self.bucket)
        if not is_complete and (foreign := foreign_name(self.bucket)) is not None:
            raise UnsafePath(
                self.bucket, f"it holds `{foreign}`, which is of no cache", "set `cache_dir` to another folder"
            )
        for subfolder in (self.entries_folder, self.blobs_folder, self.locks_folder, self.quarantine_folder):
            make_folder(subfolder)
        if folder is not None:
            path = self.bucket
            # One by one: `parents=True` would leave the mode of the parents to the umask.
            for part in folder.relative_to(self.bucket).parts:
                path /= part
                make_folder(path)
        if not is_complete:
            mark(self.root, self.bucket)


def _names(folder: Path) -> Iterator[str]:
    # Folders may appear and vanish under a reader, and a file may be where a folder is expected: both count as empty.
    try:
        with os.scandir(folder) as items:
            for item in items:
                yield item.name
    except (FileNotFoundError, NotADirectoryError):
        return
