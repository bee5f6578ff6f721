"""Prints text safely: names and texts from disk cannot control the terminal or imitate another line."""

from __future__ import annotations

import sys

import click

from gearcache.commands.output.verbosity import is_quiet
from gearcache.terminal import is_drawable


def echo(*lines: str, err: bool = False) -> None:
    """Print lines; each one remains a single line."""
    click.echo("\n".join(map(printable, lines)), err=err)


def tell(*lines: str) -> None:
    """Print a result, unless `-q` asks for silence on success."""
    if not is_quiet():
        echo(*lines)


def note(text: str) -> None:
    """Print a note on stderr, unless `-q` is given."""
    if not is_quiet():
        echo(f"note: {text}", err=True)


def warn(text: str) -> None:
    """Warn on stderr."""
    echo(f"warning: {text}", err=True)


def styled(text: str, **style: object) -> str:
    """Return a text with a style of `click.style` if stdout is a terminal that shows it."""
    return click.style(text, **style) if is_drawable(sys.stdout) else text  # type: ignore[arg-type]


def printable(text: str) -> str:
    """Return a text with line ends, escapes and direction marks written as in Python literals."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def printable_json(text: str) -> str:
    """Return a JSON document, indented or not, with these characters as JSON escapes; they occur in texts only."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter == "\n" or letter.isprintable() else _escaped_in_json(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()


def _escaped_in_json(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
