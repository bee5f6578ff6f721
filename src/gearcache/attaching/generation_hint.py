"""What `attach` says of a model that generates: there is a function that is made for it."""

from __future__ import annotations

import logging
import weakref
from typing import Any

logger = logging.getLogger("gearcache")
#: Classes of which this process was told, each with what told of it. They may go when nothing else needs them.
_told: weakref.WeakKeyDictionary[type, object] = weakref.WeakKeyDictionary()


def hint_at_generation(module: Any) -> None:
    """Name `attach_generate` once for each class of models that it takes.

    A warning, because whoever needs it has set up no log.
    """
    kind = type(module)
    if kind in _told or not _is_of_transformers(kind) or not _is_taken(module):
        return
    token = object()
    if _told.setdefault(kind, token) is not token:
        return  # another thread has just said it
    logger.warning(
        "`%s` generates: for `model.generate(...)` there is gearcache.integrations.transformers.attach_generate(model, "
        "batch=..., prompt=..., cache_length=...), whose graphs have static shapes and serve every step; plain attach "
        "serves it too, and compiles graphs for each kind of step, as torch.compile does",
        kind.__name__,
    )


def _is_of_transformers(kind: type) -> bool:
    return any(str(base.__module__).partition(".")[0] == "transformers" for base in kind.__mro__)


def _is_taken(module: Any) -> bool:
    """Whether a model can generate, and `attach_generate` would take it: nobody is sent where they are refused."""
    try:
        can_generate = getattr(module, "can_generate", None)
        if not callable(getattr(module, "generate", None)) or (callable(can_generate) and not can_generate()):
            return False
        # Not before: its import needs transformers, which a class of transformers has imported, in the right release.
        from gearcache.integrations.transformers.support import check_model

        check_model(module)
    except Exception:  # `attach` does not fail for want of advice
        return False
    return True
