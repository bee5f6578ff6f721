"""Where things lie on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gearcache.cache.atomic import write_atomic
from gearcache.cache.key import FORMAT_VERSION, CacheKey

ROOT_VARIABLE = "TORCHAIR_CACHE_HOME"
DEFAULT_ROOT = ".torchair_cache"
MANIFEST_NAME = "manifest.msgpack"

_CACHEDIR_TAG = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This file marks a cache folder created by gearcache; see https://bford.info/cachedir/\n"
)
_HEXADECIMAL = "0123456789abcdef"
_DIGEST_LENGTH = 64
_MAX_RANK_SCOPE_LENGTH = 120
_WITHOUT_MARKS = str.maketrans("", "", "_.=-")


def is_digest(text: str) -> bool:
    """Whether a text is a sha256 in lower-case hexadecimal, and so safe in a path."""
    return len(text) == _DIGEST_LENGTH and not text.strip(_HEXADECIMAL)


def is_rank_scope(text: str) -> bool:
    """Whether a text is one plain folder name: letters, digits, `_`, and inside also `.`, `=` and `-`."""
    plain = text.isascii() and text.translate(_WITHOUT_MARKS).isalnum()
    return plain and text[0] not in ".=-" and len(text) <= _MAX_RANK_SCOPE_LENGTH


def resolve_root(cache_dir: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path:
    """`cache_dir`, else `$TORCHAIR_CACHE_HOME`, else `./.torchair_cache`; absolute, empty means not given."""
    chosen = os.fspath(cache_dir or "") or environ.get(ROOT_VARIABLE) or DEFAULT_ROOT
    return Path(os.path.abspath(os.path.expanduser(chosen)))


@dataclass(frozen=True)
class Layout:
    """Every path of a cache root::

        <root>/                               mode 0700: what lies here is trusted code
          CACHEDIR.TAG  .gitignore
          v<format>/
            entries/<Class.method>-<key digest>/[<rank scope>/]manifest.msgpack
            blobs/<2 hex>/<sha256>            immutable, shared by entries, gears and ranks
            locks/<key digest>.lock           never unlinked
            index/                            can be rebuilt from the manifests
            quarantine/                       what failed verification, with the reason

    Computes paths and creates folders; immutable and safe to share by threads and processes.
    """

    root: Path
    rank_scope: str = ""

    def __post_init__(self) -> None:
        if self.rank_scope and not is_rank_scope(self.rank_scope):
            raise ValueError(f"a rank scope is one plain folder name, got `{self.rank_scope}`")

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

    def manifest(self, key: CacheKey) -> Path:
        """The file that alone makes the entry of a key exist."""
        return self.entries_folder / key.name / self.rank_scope / MANIFEST_NAME

    def blob(self, digest: str) -> Path:
        """The file of one blob."""
        if not is_digest(digest):
            raise ValueError(f"a blob is named by its sha256, got `{digest}`")
        return self.blobs_folder / digest[:2] / digest

    def lock(self, key: CacheKey) -> Path:
        """The lock of one key, common to all rank scopes."""
        return self.locks_folder / f"{key.digest}.lock"

    def quarantine(self, name: str) -> Path:
        """The resting place of a file that failed verification."""
        return self.quarantine_folder / name

    def entries(self, label: str | None = None) -> Iterator[Path]:
        """All manifests, in all rank scopes and no order; `label` is a `CacheKey.safe_label`."""
        start = label or ""
        for entry in _scan(self.entries_folder):
            # The cheap test first: there may be 100,000 entries, and a label has a few.
            if not entry.name.startswith(start):
                continue
            stored_label, _, digest = entry.name.rpartition("-")
            if is_digest(digest) and label in (None, stored_label):
                for inner in _scan(entry.path):
                    if inner.name == MANIFEST_NAME:
                        yield Path(inner.path)
                    elif is_rank_scope(inner.name):
                        scoped = _scan(inner.path)
                        yield from (Path(file.path) for file in scoped if file.name == MANIFEST_NAME)

    def prepare(self) -> None:
        """Create the folders that are missing, readable by their owner only.

        A root that exists keeps its mode. May run in many processes at once; raises `OSError` or
        `PublishError`.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.bucket.mkdir(mode=0o700, exist_ok=True)
        for folder in (self.entries_folder, self.blobs_folder, self.locks_folder, self.quarantine_folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        for name, content in (("CACHEDIR.TAG", _CACHEDIR_TAG), (".gitignore", b"*\n")):
            if not (self.root / name).exists():
                write_atomic(self.root / name, content)


def _scan(folder: str | Path) -> list[os.DirEntry[str]]:
    # Folders come and go under a reader, and files lie where a folder is expected: both hold no entry.
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
