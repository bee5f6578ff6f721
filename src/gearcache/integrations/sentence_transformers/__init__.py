"""`attach_encode`: `model.encode(...)` of a model of sentence-transformers runs from graphs kept on disk."""

import sentence_transformers as _sentence_transformers

from gearcache.integrations.tried import transformers_problem as _problem

# The first release that was tried; older ones call the forward of a model past `module.compile()`.
if tuple(int(part) for part in _sentence_transformers.__version__.split(".")[:2]) < (6, 2):
    raise ImportError(
        "gearcache.integrations.sentence_transformers works with sentence-transformers 6.2 and later, this is "
        f"{_sentence_transformers.__version__}: `pip install 'gearcache[sentence-transformers]'`"
    )
if _found := _problem("sentence_transformers", "sentence-transformers", {}):
    raise ImportError(_found)

from gearcache.integrations.sentence_transformers.attach_encode import attach_encode as attach_encode
from gearcache.integrations.sentence_transformers.attached_encoder import AttachedEncoder as AttachedEncoder

#: Its name before.
attach = attach_encode

__all__ = ["AttachedEncoder", "attach", "attach_encode"]
