"""Shortens texts that are too long for a terminal, at the place that carries the least information."""

from __future__ import annotations

_MARK = "…"
#: The share of the end in the shortened text: it holds the method of a class and the arguments of a command.
_SHARE_OF_END = 0.65


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width` letters; a longer one loses its middle.

    The part after the last dot of a name is kept if one letter fits before it: `NameThat…Model.decode`.
    """
    if len(text) <= width:
        return text
    room = max(1, width - len(_MARK))
    end = round(room * _SHARE_OF_END)
    name_length = len(text) - text.rfind(".") if "." in text else 0
    end = min(room - 1, max(end, name_length)) if room > 1 else room
    return f"{text[: room - end]}{_MARK}{text[len(text) - end :]}"
