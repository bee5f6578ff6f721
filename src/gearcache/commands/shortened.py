"""Texts that are too long for a terminal, cut where they tell least."""

from __future__ import annotations

_MARK = "…"
#: Of what is left, the part at the end: there stand the method of a class and the arguments of a command.
_SHARE_OF_END = 0.65


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width` letters, with the middle cut out of a longer one.

    What follows the last dot of a name is kept as long as one letter before it can be: `NameThat…Model.decode`.
    """
    if len(text) <= width:
        return text
    left = max(1, width - len(_MARK))
    end = round(left * _SHARE_OF_END)
    last = len(text) - text.rfind(".") if "." in text else 0
    end = min(left - 1, max(end, last)) if left > 1 else left
    return f"{text[: left - end]}{_MARK}{text[len(text) - end :]}"
