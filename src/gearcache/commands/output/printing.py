"""Prints text safely: names and texts from disk cannot control the terminal or imitate another line."""

from __future__ import annotations

import sys

import click

from gearcache.commands.output.verbosity import is_quiet
from gearcache.terminal import is_drawable

#: The share of the end in a shortened text: it holds the method of a class and the arguments of a command.
_SHARE_OF_END = 0.65


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


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width` letters; a longer one loses its middle.

    The part after the last dot of a name is kept if one letter fits before it: `NameThat…Model.decode`.
    """
    if len(text) <= width:
        return text
    room = max(1, width - 1)
    end = round(room * _SHARE_OF_END)
    name_length = len(text) - text.rfind(".") if "." in text else 0
    end = min(room - 1, max(end, name_length)) if room > 1 else room
    return f"{text[: room - end]}…{text[len(text) - end :]}"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()
