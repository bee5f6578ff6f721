"""One fault: a text of one product file replaced by another, and the tests that must catch it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class MisplacedFault(ValueError):
    """The code has changed: the text that a fault replaces does not occur exactly once."""


@dataclass(frozen=True)
class Fault:
    """A mechanism taken away that keeps one promise of the documentation.

    `file` is a path from the root of the repository, with the real folders, not the links below `src/gearcache`. `old`
    occurs exactly once there. `tests` are files or ids of tests, quick ones where there are any, that fail with `new`.
    """

    promise: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """Return the text of the file with this fault."""
        count = text.count(self.old)
        if count != 1:
            raise MisplacedFault(f"`{self.promise}`: `{self.old.strip()}` occurs {count} times in `{self.file}`")
        return text.replace(self.old, self.new)

    def put_into(self, root: Path) -> None:
        """Change the file below a root."""
        path = root / self.file
        path.write_text(self.applied_to(path.read_text(encoding="utf-8")), encoding="utf-8")
