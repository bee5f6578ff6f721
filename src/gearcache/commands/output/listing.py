"""One listing for people, pipes and programs: rows of plain data, and how a table shows their fields.

`--json` prints the rows unchanged; the table, on a terminal or in a pipe, is made from the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gearcache.commands.output.table import print_table


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
        """Print a table; prints nothing if there are no rows."""
        spare = sorted((column for column in self.columns if column.spare), key=lambda column: -column.spare)
        if rows:
            print_table(
                [column.title for column in self.columns],
                [[column.text(row[column.field]) for column in self.columns] for row in rows],
                right=[column.title for column in self.columns if column.is_right],
                spare=[column.title for column in spare],
            )


def or_dash(value: object) -> str:
    """Return a value as a cell shows it: `-` for None."""
    return "-" if value is None or value == "" else str(value)


def number_of(values: Sequence[Any] | Mapping[str, Any]) -> str:
    """Return the number of items."""
    return str(len(values))


def percent(share: float | None) -> str:
    """Return a share as a cell shows it."""
    return "-" if share is None else f"{100 * share:.1f}%"
