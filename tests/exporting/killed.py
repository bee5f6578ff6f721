"""Exports that are killed at each of their changes to the disk: programs that import no torch, and so fork cheaply."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gearcache.exporting import exchange
from gearcache.exporting.export_folder import work_folder
from tests.exporting.exports import contents, export

OLD = {"dynamo.pbtxt": "old", "net.air": "old", "weight_of_old": "old"}
FRESH = {"dynamo.pbtxt": "new", "net.air": "new", "weight_of_new": "new"}


def killed_after(count: int, work: Callable[[], None]) -> bool:
    """Fork, and kill the child when it is about to do its n-th change to the disk; whether it came so far."""
    child = os.fork()
    if child == 0:
        left = count

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event.startswith(("os.", "shutil.", "open", "ctypes.dlsym", "fcntl.")):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(hook)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def replaced() -> None:
    """Kill exports that replace another one; the next export finds the old one or the new one, and cleans up."""
    top, way = Path(sys.argv[1]), sys.argv[2]
    if way == "renames":
        exchange.exchange = lambda first, second: False
    moments, seen, count, was_killed = 0, set(), 0, True
    while was_killed:
        root = top / str(count)
        target = root / "out"
        export(target, "old", *OLD)
        was_killed = killed_after(count, lambda target=target: export(target, "new", *FRESH))  # type: ignore[misc]
        if target.exists() or way == "exchange":
            found = contents(target)
            assert found in (OLD, FRESH), f"killed at change {count}: {found}"
            seen.add(found["net.air"])
        else:
            moments += 1
        with work_folder(target):  # the next export cleans up before it begins
            assert len(list(root.iterdir())) == 2
            assert contents(target) in (OLD, FRESH)
        assert [path.name for path in root.iterdir()] == ["out"]
        count += was_killed
    print(json.dumps({"seen": sorted(seen), "kills": count, "moments without": moments}))


def first() -> None:
    """Kill first exports; nothing or all is there, and the next export is as ever."""
    top, count, was_killed = Path(sys.argv[1]), 0, True
    while was_killed:
        target = top / str(count) / "out"
        was_killed = killed_after(count, lambda target=target: export(target, "new", *FRESH))  # type: ignore[misc]
        assert not target.exists() or contents(target) == FRESH
        export(target, "new", *FRESH)
        assert [path.name for path in target.parent.iterdir()] == ["out"]
        assert contents(target) == FRESH
        count += was_killed
    print(json.dumps({"kills": count}))
