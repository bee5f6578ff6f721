"""Exports without a graph: files of one content, put in place as `dynamo_export` does."""

from __future__ import annotations

from pathlib import Path

from gearcache.exporting.export_folder import NEW, publish, work_folder
from gearcache.exporting.export_manifest import MANIFEST

Owners = dict[str, int | None]


def export(target: Path, content: str, *names: str, rank: int | None = None, world: int = 1) -> None:
    """Export files of one content."""
    with work_folder(target) as work:
        owners: Owners = {}
        for name in names or ("dynamo.pbtxt", "net.air"):
            path = work / NEW / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            owners[name] = rank
        publish(work, target, owners, world)


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}
