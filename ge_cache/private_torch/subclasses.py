"""All subclasses of a class that exist now."""

from __future__ import annotations

from typing import Any


def with_subclasses(cls: Any) -> list[Any]:
    """Return a class and all its subclasses."""
    classes = {cls: None}
    for subclass in type.__subclasses__(cls):
        classes |= dict.fromkeys(with_subclasses(subclass))
    return list(classes)
