"""Exports that are killed at each of their changes to the disk: programs that import no torch, and so fork cheaply."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

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
            if event.startswith(("os.", "shutil.", "open")):
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
    """Kill exports, without and with one before; what was there is there or aside, and the next export is as ever."""
    top, seen, count, was_killed = Path(sys.argv[1]), set(), 0, True
    while was_killed:
        for before in ({}, OLD):
            target = top / f"{count} {len(before)}" / "out"
            if before:
                export(target, "old", *before)
            was_killed = killed_after(count, lambda target=target: export(target, "new", *FRESH, overwrite=True))  # type: ignore[misc]
            asides = [path / "old" for path in target.parent.glob(".out.gearcache-export-*") if (path / "old").exists()]
            found = contents(target) if target.exists() or not asides else contents(asides[0])
            assert found in (before, FRESH), f"killed at change {count}: {found}"
            seen.add(found.get("net.air", "none"))
            export(target, "new", *FRESH, overwrite=True)
            assert contents(target) == FRESH
        count += was_killed
    print(json.dumps({"seen": sorted(seen), "kills": count}))
