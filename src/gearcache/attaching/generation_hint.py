"""Recommends `attach_generate` when `attach` is used on a model that generates text."""

from __future__ import annotations

import logging
import weakref
from typing import Any

logger = logging.getLogger("gearcache")
#: Classes that this process has warned about, each with the token of the warning. The keys are weak references.
_warned: weakref.WeakKeyDictionary[type, object] = weakref.WeakKeyDictionary()


def hint_at_generation(module: Any) -> None:
    """Recommend `attach_generate`, once for each class of models that it accepts.

    This is a warning because the users who need it have set up no logging.
    """
    kind = type(module)
    if kind in _warned or not _is_of_transformers(kind) or not _is_accepted(module):
        return
    token = object()
    if _warned.setdefault(kind, token) is not token:
        return  # another thread has just logged it
    logger.warning(
        "`%s` generates: for `model.generate(...)` there is gearcache.integrations.transformers.attach_generate(model, "
        "batch=..., prompt=..., cache_length=...), whose graphs have static shapes and serve every step; plain attach "
        "serves it too, and compiles graphs for each kind of step, as torch.compile does",
        kind.__name__,
    )


def _is_of_transformers(kind: type) -> bool:
    return any(str(base.__module__).partition(".")[0] == "transformers" for base in kind.__mro__)


def _is_accepted(module: Any) -> bool:
    """Whether a model can generate and `attach_generate` accepts it: the hint must not send users into a refusal."""
    try:
        can_generate = getattr(module, "can_generate", None)
        if not callable(getattr(module, "generate", None)) or (callable(can_generate) and not can_generate()):
            return False
        # Not before: its import needs transformers, which a transformers class has imported, in a supported release.
        from gearcache.integrations.transformers.support import check_model

        check_model(module)
    except Exception:  # `attach` does not fail because the hint does
        return False
    return True
