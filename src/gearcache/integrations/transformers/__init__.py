"""`attach`: `model.generate(...)` of a model of transformers runs from graphs kept on disk."""

from gearcache.integrations.tried import transformers_problem as _problem

if _found := _problem("transformers", "transformers"):
    raise ImportError(_found)

from gearcache.integrations.transformers.attach import attach as attach
from gearcache.integrations.transformers.attached_model import AttachedModel as AttachedModel

__all__ = ["AttachedModel", "attach"]
