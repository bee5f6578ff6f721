"""What processes do with a store, without torch: the actors of the tests that kill them, and what must hold after.

`python tests/support/store_actors.py <root> boundaries <actor> <step>` kills real processes and prints a report;
`... calls <name> <last>` forks processes that strace kills. They run as a program of their own because they fork, which
a process with threads must not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.bundle import take_bundle, write_bundle
from gearcache.cache.admin.verify import verify
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.result import Miss, MissReason
from gearcache.cache.store import DiskStore
from gearcache.errors import CacheError
from gearcache.readable.joined import joined

KEYS = [
    CacheKey(f"Model.{name}", (("name", name), ("number", number)))
    for name in ("decode", "prefill")
    for number in range(3)
]
COMMON = b"c" * 40_000
#: Calls that change something. To die between two others is to die before the next of these.
BOUNDARY_CALLS = (
    "open",
    "write",
    "fsync",
    "mkdir",
    "rmdir",
    "unlink",
    "rename",
    "replace",
    "close",
    "utime",
    "ftruncate",
)


def publish(root: Path, number: int = 0) -> None:
    """Compile a key, as the product does: lock, look again, blobs, manifest."""
    key = KEYS[number]
    store = DiskStore(Layout(root), lock_timeout=30)
    with store.exclusive(key):
        store.use(key)
        store.lookup(key, explain=False)
        blobs = [COMMON, b"p" * 500 + bytes([number % 3]), b"o" * 3000 + key.digest.encode()]
        with store.writing():
            sizes = {store.put_blob(data): len(data) for data in blobs}
            store.publish(key, {"blobs": list(sizes), "filler": "x" * 20_000}, sizes, {"gears": ["a"]})


def load(root: Path, number: int = 0) -> bool:
    """Load a key, as the product does; whether it was there. Raises when a kept entry turns out not to be whole."""
    store = DiskStore(Layout(root), lock_timeout=30)
    kept = store.use(KEYS[number])
    found = store.lookup(KEYS[number])
    if isinstance(found, Miss):
        assert found.reason is MissReason.ABSENT, found
        return False
    store.count_load(KEYS[number])
    assert found.manifest.payload["blobs"] == list(found.manifest.blobs)
    for digest, size in found.manifest.blobs.items():
        if kept:
            assert len(store.read_blob(digest)) == size
    return True


def evict(root: Path, number: int = 0) -> None:
    """Drop what is over a limit that about half of the entries fit in."""
    _raise_first(Catalog(Layout(root)).prune(max_size=60_000 + 8_000 * number).faults)


def clear(root: Path, number: int = 0) -> None:
    """Remove all entries that nobody uses, as `gearcache clear` does."""
    catalog = Catalog(Layout(root))
    _raise_first(catalog.remove(catalog.entries()).faults)


def collect(root: Path, number: int = 0) -> None:
    """Remove what belongs to no entry."""
    fault = Catalog(Layout(root)).collect().fault
    _raise_first([fault] if fault else [])


def bring(root: Path, number: int = 0) -> None:
    """Import a bundle of all entries."""
    take_bundle(Layout(root), root.with_name("bundle.tar"), joined)


ACTORS: dict[str, Callable[[Path, int], object]] = {
    "publish": publish,
    "load": load,
    "evict": evict,
    "clear": clear,
    "collect": collect,
    "import": bring,
}


def _raise_first(faults: list[CacheError]) -> None:
    for fault in faults:
        raise fault


def make_bundle(root: Path, numbers: Iterable[int]) -> None:
    """Put a bundle of some keys beside the root."""
    source = root.with_name("source")
    for number in numbers:
        publish(source, number)
    layout = Layout(source)
    write_bundle(layout, Catalog(layout).entries(), root.with_name("bundle.tar"))


def spawn(work: Callable[[], object]) -> int:
    """Fork a process that does the work; it ends with 1 and a report on stderr for an error."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(f"actor: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return child


def check_after(root: Path, known: Iterable[int], numbers: Iterable[int]) -> None:
    """Nothing that a killed process left is a danger or an obstacle: the next one continues, leftovers go.

    Of all keys only those that are known may have been written; some of them are published again.
    """
    layout = Layout(root)
    for number in known:
        load(root, number)
    assert list(layout.quarantine_folder.glob("*")) == []
    fault = Catalog(layout).collect().fault
    assert fault is None, fault
    assert verify(layout).faults == []
    for number in numbers:
        publish(root, number)
        assert load(root, number)


def kill_at_boundaries(root: Path, actor: str, step: int) -> dict[str, Any]:
    """Kill an actor before a call to the operating system, of each `step` calls the last, to its end."""
    prepared = root.with_name("prepared")
    make_bundle(root, [0, 1])
    for number in (0, 2):
        publish(prepared, number)
    calls = 0
    while True:
        calls += step
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(prepared, root)
        child = spawn(partial(_act_until, calls, partial(ACTORS[actor], root, 1)))
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, f"{actor} failed at call {calls}"
        check_after(root, [0, 1, 2], [1])
        if not os.WIFSIGNALED(status):
            return {"boundaries": calls - step}


def _act_until(last: int, work: Callable[[], object]) -> None:
    """Work, but die before the call of this number."""
    made = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            if made == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    for name in BOUNDARY_CALLS:
        setattr(os, name, counted(getattr(os, name)))
    fcntl.flock = counted(fcntl.flock)
    work()


#: System calls that do nothing, to be counted by who kills at a call of some number.
_IDLE: dict[str, Callable[[], object]] = {
    "mkdir": partial(os.mkdir, ""),
    "openat": partial(os.open, "", os.O_RDONLY),
    "write": partial(os.write, 9999, b""),
    "fsync": partial(os.fsync, 9999),
    "rename": partial(os.rename, "", ""),
    "unlink": partial(os.unlink, ""),
    "flock": partial(fcntl.flock, 9999, fcntl.LOCK_UN),
    "utimensat": partial(os.utime, ""),
}


def publish_until_call(root: Path, name: str, last: int) -> None:
    """Fork a process that publishes for each line on stdin; the n-th one begins `last` - n calls further on.

    So whoever kills at the call of number `last` ends the n-th process at its n-th call. Prints how each one ended.
    """
    publish(root.with_name("imported"), 0)  # what a publish imports is imported before the calls are counted
    os.waitpid(spawn(partial(_fork_for_each_line, root, name, last)), 0)  # of a fork no call has been counted


def _fork_for_each_line(root: Path, name: str, last: int) -> None:
    for number, _ in enumerate(sys.stdin, 1):
        child = spawn(partial(_publish_after, root, name, last - number))
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


def _publish_after(root: Path, name: str, calls: int) -> None:
    for _ in range(calls):
        with contextlib.suppress(OSError):
            _IDLE[name]()
    publish(root, 0)


def main() -> None:
    """Run what the command line names, and print the report."""
    root, what, *rest = sys.argv[1:]
    if what == "boundaries":
        report = kill_at_boundaries(Path(root), rest[0], int(rest[1]))
    elif what == "calls":
        publish_until_call(Path(root), rest[0], int(rest[1]))
        return
    else:
        report = {"done": ACTORS[what](Path(root), int(rest[0]))}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
