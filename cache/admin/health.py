"""Check whether a cache can be used here, and say how to fix it where it cannot."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import total_size
from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.files.trust import check_folders
from gearcache.cache.layout import Layout
from gearcache.cache.locks.lock import store_lock
from gearcache.cache.quantities import size_text
from gearcache.cache.quarantine import quarantined
from gearcache.cache.signatures.signature import Signer
from gearcache.errors import CacheError, GearcacheError, UnsafePath

LITTLE_SPACE = 1 << 30
#: How the types of file systems begin that get their files from another host or process.
_NETWORK = ("nfs", "ceph", "lustre", "fuse", "9p", "cifs", "smb", "gpfs", "afs", "beegfs", "ocfs2", "gfs2")
_READABLE = "make the folder of the cache readable for this user (for an image: `gearcache pack --folder`)"


class HealthCheck(Struct, frozen=True):
    """One thing that was tried. `ok` is None for a note that is not a fault; `remedy` is then empty."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


def check_health(layout: Layout, hmac_key_file: Path | None = None) -> list[HealthCheck]:
    """Try what a cache needs of its folder (trust, writing, locks, space), and look at its content.

    Creates nothing where there is no cache yet: the nearest existing parent folder is checked instead. Never raises.
    """
    checks = [_guard("folder", lambda: _check_root(layout))]
    if checks[0].ok:
        checks += [_guard("permissions", lambda: _check_trust(layout))]
        if checks[-1].ok:  # else each entry would be a fault
            checks += [_guard("entries", lambda: _check_entries(layout))]
    folder = _nearest_folder(layout.root)
    of_writing = guarded_all("writing", lambda: _check_changes(layout, folder))
    if checks[0].ok is None and of_writing[0].ok is False:
        text = f"`{layout.root}` is not there, and cannot be made in `{folder}`: {of_writing[0].detail}"
        checks[0] = HealthCheck("folder", False, text, "choose another `cache_dir`")
    else:
        checks += [
            *of_writing,
            _guard("file system", lambda: _check_file_system(folder)),
            _guard("space", lambda: _check_space(folder)),
        ]
    return [*checks, _guard("signatures", lambda: _check_signatures(hmac_key_file))]


def guarded_all(name: str, check: Callable[[], list[HealthCheck]]) -> list[HealthCheck]:
    """Return the results of some checks, or one result of this name with their fault, so that other checks run."""
    try:
        return check()
    except UnsafePath as error:
        return [HealthCheck(name, False, f"`{error.path}`: {error.reason}", error.remedy)]
    except GearcacheError as error:
        return [HealthCheck(name, False, str(error), "see the message")]
    except OSError as error:
        text = f"`{error.filename}`: {error.strerror}" if error.filename else str(error)
        remedy = _READABLE if error.errno == errno.EACCES else "choose another `cache_dir`, or mend it"
        return [HealthCheck(name, False, text, remedy)]


def _guard(name: str, check: Callable[[], HealthCheck]) -> HealthCheck:
    return guarded_all(name, lambda: [check()])[0]


def _check_root(layout: Layout) -> HealthCheck:
    if layout.root.is_dir():
        return HealthCheck("folder", True, f"`{layout.root}`")
    if os.path.lexists(layout.root):
        return HealthCheck("folder", False, f"`{layout.root}` is not a folder", "choose another `cache_dir`")
    return HealthCheck("folder", None, f"`{layout.root}` is not there yet; it will be created")


def _check_trust(layout: Layout) -> HealthCheck:
    for folder in (
        layout.entries_folder,
        layout.blobs_folder,
        layout.locks_folder,
        layout.index_folder,
        layout.quarantine_folder,
    ):
        check_folders(layout.root, folder)
    return HealthCheck("permissions", True, "only you, or root, can write here")


def _check_entries(layout: Layout) -> HealthCheck:
    catalog = Catalog(layout)
    entries = catalog.entries()
    text = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}, {size_text(total_size(entries))}"
    if catalog.faults:
        return HealthCheck(
            "entries", False, f"{text}; {len(catalog.faults)} unusable", "run `gearcache verify --repair`"
        )
    leftovers = catalog.collect(dry_run=True)
    waste = len(leftovers.blobs) + len(leftovers.leftovers) + len(quarantined(layout))
    if waste:
        return HealthCheck("entries", None, f"{text}; {waste} files that no entry needs")
    return HealthCheck("entries", True, text)


def _check_changes(layout: Layout, folder: Path) -> list[HealthCheck]:
    """Check what storing needs, if this user may write or there is nothing to read either."""
    if not os.access(folder, os.W_OK) and Catalog(layout).entries():
        text = f"this user cannot write to `{folder}`: stored entries serve, and what they lack is not stored"
        return [HealthCheck("writing", None, text, "let this user write there, or compile as the user that can")]
    return [_guard("writing", lambda: _check_writing(folder)), _guard("locks", lambda: _check_locks(folder))]


def _check_writing(folder: Path) -> HealthCheck:
    probe = folder / f".gearcache-probe-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        begin = time.perf_counter()
        write_atomic(probe, b"probe")
        seconds = time.perf_counter() - begin
    finally:
        with suppress(OSError):
            probe.unlink()
    return HealthCheck("writing", True, f"a file is on disk after {seconds * 1000:.1f} ms")


def _check_locks(folder: Path) -> HealthCheck:
    probe = folder / f".gearcache-probe-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with store_lock(probe, 0.0, alone=False), store_lock(probe, 0.0, alone=False):
            pass
        with store_lock(probe, 0.0, alone=True):
            if _can_lock(probe):
                remedy = "choose a `cache_dir` on a local file system, or mount this one with locks"
                return HealthCheck("locks", False, "locks of this file system exclude nobody", remedy)
    finally:
        with suppress(OSError):
            probe.unlink()
    return HealthCheck("locks", True, "shared and exclusive kernel locks work")


def _can_lock(path: Path) -> bool:
    try:
        with store_lock(path, 0.0, alone=True):
            return True
    except CacheError:
        return False


def _check_file_system(folder: Path) -> HealthCheck:
    kind = _type_of_mount(folder)
    if kind.startswith(_NETWORK):
        remedy = "choose a `cache_dir` on a local disk, and share it through a tier: `GEARCACHE_REMOTES=folder:/share`"
        return HealthCheck(
            "file system", None, f"`{folder}` lies on {kind}: locks and renames may not hold there", remedy
        )
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        text = f"`{folder}` is mounted noexec: each process loads compiled code from copies of its own in memory"
        return HealthCheck("file system", None, text, "mount it without noexec, so that processes share that memory")
    return HealthCheck("file system", True, f"`{folder}` lies on no network file system that is known")


def _type_of_mount(folder: Path) -> str:
    """Return the type of the file system of a folder; empty if the system does not list its mounts."""
    types: dict[Path, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
            _, place, kind, *_ = line.split()
            types[Path(place)] = kind
    resolved = folder.resolve()
    return next((types[place] for place in (resolved, *resolved.parents) if place in types), "")


def _check_space(folder: Path) -> HealthCheck:
    free = shutil.disk_usage(folder).free
    text = f"{size_text(free)} free"
    if free < LITTLE_SPACE:
        remedy = "set `GEARCACHE_MAX_SIZE`, run `gearcache prune --max-size ...`, or choose another `cache_dir`"
        return HealthCheck("space", False, text, remedy)
    return HealthCheck("space", True, text)


def _check_signatures(key_file: Path | None) -> HealthCheck:
    if key_file is None:
        return HealthCheck("signatures", None, "entries need no signature (`GEARCACHE_HMAC_KEY_FILE` is not set)")
    Signer(key_file).signature(b"")
    return HealthCheck("signatures", True, f"only entries signed with `{key_file}` are used")


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if os.path.isdir(folder))  # noqa: PTH112 - never raises
