"""One listing for people, pipes and programs: rows of plain data, and how a table shows their fields.

`--json` prints the rows unchanged; the table, on a terminal of any width or in a pipe, is made from the same rows.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
from msgspec import Struct

from gearcache.commands.output.printing import printable, shortened, styled

_GAP = "  "
#: Widths of the first column, which names the subject of a row. On a terminal its middle is cut: to the second width
#: before columns are left out, and to the first before a row becomes a paragraph.
_NAME_WIDTHS = (24, 48)


class Column(Struct, frozen=True):
    """A field of the rows under a title. On a narrow terminal, columns with a `spare` are left out, the highest `spare`
    first."""

    title: str
    field: str
    text: Callable[[Any], str] = str
    is_right: bool = False
    spare: int = 0


class Listing(Struct, frozen=True):
    """The columns of one kind of rows."""

    columns: Sequence[Column]

    def print(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a table; on a terminal that is too narrow for it, each row is a paragraph. In a pipe a row is a line.

        Prints nothing if there are no rows. Columns with a `spare` are left out if there is no room; then names are
        cut. This is not rich's table, which takes 40 s for the 100,000 rows of a large cache; this one takes half a
        second.
        """
        if not rows:
            return
        cells = {each.title: [printable(each.text(row[each.field])) for row in rows] for each in self.columns}
        widths = {title: max(map(_width, (title, *column))) for title, column in cells.items()}
        # A pipe has no width to cut lines to.
        available = shutil.get_terminal_size().columns if sys.stdout.isatty() else _needed(widths)
        name = self.columns[0].title
        cut = available - _needed(widths) + widths[name]
        for each in sorted((each for each in self.columns if each.spare), key=lambda each: -each.spare):
            if cut >= min(widths[name], _NAME_WIDTHS[1]):
                break
            cut += widths.pop(each.title) + len(_GAP)
        if cut >= min(widths[name], _NAME_WIDTHS[0]):
            if cut < widths[name]:
                cells[name] = [shortened(cell, cut) for cell in cells[name]]
                widths[name] = cut
            shown = [each for each in self.columns if each.title in widths]
            columns = [_padded([each.title, *cells[each.title]], widths[each.title], each.is_right) for each in shown]
            header, *lines = (_GAP.join(line).rstrip() for line in zip(*columns, strict=True))
            click.echo("\n".join([styled(header, bold=True), *lines]))
            return
        for subject, *others in zip(*cells.values(), strict=True):
            pairs = [f"{each.title} {cell}" for each, cell in zip(self.columns[1:], others, strict=True)]
            inner = "".join(f"\n  {line}" for line in textwrap.wrap(", ".join(pairs), max(10, available - 2)))
            click.echo(f"{styled(shortened(subject, available), bold=True)}{inner}")


def or_dash(value: object) -> str:
    """Return a value as a cell shows it: `-` for None."""
    return "-" if value is None or value == "" else str(value)


def number_of(values: Sequence[Any] | Mapping[str, Any]) -> str:
    """Return the number of items."""
    return str(len(values))


def percent(share: float | None) -> str:
    """Return a share as a cell shows it."""
    return "-" if share is None else f"{100 * share:.1f}%"


def between_words(text: str, indent: int) -> list[str]:
    """Return a text as lines that fit beside an indent on the terminal; unchanged in a pipe. No word is broken."""
    if not sys.stdout.isatty():
        return [text]
    width = max(20, shutil.get_terminal_size().columns - indent)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _needed(widths: dict[str, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _padded(column: Sequence[str], width: int, is_right: bool) -> Iterator[str]:
    justify = str.rjust if is_right else str.ljust
    # These functions count letters, but a wide letter takes two columns.
    return (justify(cell, width - _width(cell) + len(cell)) for cell in column)


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal: a wide letter takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
