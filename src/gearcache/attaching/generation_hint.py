"""What `attach` says of a model that generates: there is a function that is made for it."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("gearcache")
#: Classes of which it was said.
_told: set[type] = set()


def hint_at_generation(module: Any) -> None:
    """Name `attach_generate` once for each class of models of transformers that generate. Imports nothing."""
    kind = type(module)
    if kind in _told or not any(base.__module__.partition(".")[0] == "transformers" for base in kind.__mro__):
        return
    can_generate = getattr(module, "can_generate", None)
    if not callable(getattr(module, "generate", None)) or (callable(can_generate) and not can_generate()):
        return
    _told.add(kind)
    logger.warning(
        "`%s` generates: gearcache.integrations.transformers.attach_generate(model, batch=, prompt=, cache_length=) "
        "has static graphs for all steps of `generate`; attach serves them too, through graphs with dynamic dims, one "
        "more for each kind of step",
        kind.__name__,
    )
