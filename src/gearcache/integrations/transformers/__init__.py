"""`attach_generate`: runs `model.generate(...)` of a transformers model from graphs kept on disk."""

from gearcache.integrations.tried import transformers_problem as _problem

if _import_problem := _problem("transformers", "transformers"):
    raise ImportError(_import_problem)

from gearcache.integrations.transformers.attach_generate import attach_generate as attach_generate
from gearcache.integrations.transformers.attached_model import AttachedModel as AttachedModel

__all__ = ["AttachedModel", "attach_generate"]
