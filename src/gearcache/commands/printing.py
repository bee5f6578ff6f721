"""Printing: whatever a name or a text from the disk holds, it neither steers a terminal nor looks like another line."""

from __future__ import annotations

import sys

import click

from gearcache.commands.verbosity import is_quiet
from gearcache.terminal import is_drawable


def echo(*lines: str, err: bool = False) -> None:
    """Print lines, each of which stays one line."""
    click.echo("\n".join(map(printable, lines)), err=err)


def tell(*lines: str) -> None:
    """Print what was done, unless `-q` asks for silence when all is well."""
    if not is_quiet():
        echo(*lines)


def note(text: str) -> None:
    """Tell something on stderr, unless with `-q`."""
    if not is_quiet():
        echo(f"note: {text}", err=True)


def warn(text: str) -> None:
    """Warn on stderr."""
    echo(f"warning: {text}", err=True)


def styled(text: str, **style: object) -> str:
    """Return a text with a style of `click.style` where stdout is a terminal that shows it."""
    return click.style(text, **style) if is_drawable(sys.stdout) else text  # type: ignore[arg-type]


def printable(text: str) -> str:
    """Return a text in which line ends, escapes and marks of direction are written as in Python's literals."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def printable_json(text: str) -> str:
    """Return a JSON document, indented or not, with the same escaped as JSON does; such letters stand in texts only."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter == "\n" or letter.isprintable() else _escaped_in_json(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()


def _escaped_in_json(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
