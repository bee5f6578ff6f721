"""`attach`: `model.generate(...)` of a model of transformers runs prefill and decode from graphs kept on disk."""

from gearcache.integrations.transformers.attach import attach as attach
from gearcache.integrations.transformers.attached_model import AttachedModel as AttachedModel

__all__ = ["AttachedModel", "attach"]
