"""`attach_encode`: runs `model.encode(...)` of a sentence-transformers model from graphs kept on disk."""

import sentence_transformers as _sentence_transformers

from gearcache.integrations.tried import transformers_problem as _problem

# The oldest release that was tried; in older ones, calls of the model's forward bypass `module.compile()`.
if tuple(int(part) for part in _sentence_transformers.__version__.split(".")[:2]) < (6, 2):
    raise ImportError(
        "gearcache.integrations.sentence_transformers works with sentence-transformers 6.2 and later, this is "
        f"{_sentence_transformers.__version__}: `pip install 'gearcache[sentence-transformers]'`"
    )
if _import_problem := _problem("sentence_transformers", "sentence-transformers", {}):
    raise ImportError(_import_problem)

from gearcache.integrations.sentence_transformers.attach_encode import attach_encode as attach_encode
from gearcache.integrations.sentence_transformers.attached_encoder import AttachedEncoder as AttachedEncoder

__all__ = ["AttachedEncoder", "attach_encode"]
