"""`attach`: `model.generate(...)` of a model of transformers runs from graphs kept on disk."""

import transformers as _transformers

# The first release that was tried; older ones lack what is imported below.
if tuple(int(part) for part in _transformers.__version__.split(".")[:2]) < (5, 23):
    raise ImportError(
        "gearcache.integrations.transformers works with transformers 5.23 and later, this is "
        f"{_transformers.__version__}: `pip install 'gearcache[transformers]'`"
    )

from gearcache.integrations.transformers.attach import attach as attach
from gearcache.integrations.transformers.attached_model import AttachedModel as AttachedModel

__all__ = ["AttachedModel", "attach"]
