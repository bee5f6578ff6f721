"""The bar of a build on a terminal: the method, gears done, time, and the current step. Imports rich."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

_REFRESHES = 4  # per second


class _Current(ProgressColumn):
    """Shows what a function returns at each refresh, on one line; the end is cut where there is no room."""

    def __init__(self, text: Callable[[], str], style: str = "") -> None:
        super().__init__()
        self._text, self._style = text, style

    def render(self, task: Task) -> Text:
        """Return the text of now."""
        return Text(self._text(), self._style, no_wrap=True, overflow="ellipsis")


def progress_bar(method: str, count: Callable[[], str], step: Callable[[], str]) -> Progress:
    """Return a bar with one task, of which 1.0 is the whole."""
    bar = Progress(
        _Current(lambda: method, "bold"),
        BarColumn(16),
        _Current(count, "green"),
        TimeElapsedColumn(),
        _Current(step),
        console=Console(stderr=True),
        refresh_per_second=_REFRESHES,
    )
    bar.add_task("", total=1.0)
    return bar
