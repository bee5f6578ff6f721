"""Records the state of a model when it was attached, and decides whether a generation must run without graphs."""

from __future__ import annotations

from typing import Any

from gearcache.integrations.misses import UnservedCall
from gearcache.integrations.transformers.sizes import Sizes
from gearcache.integrations.transformers.slots import LayerShapes
from gearcache.integrations.transformers.support import measured_shapes, reason_against, told_shapes


class ModelState:
    """A model with the sizes of its keys and values; the graphs of one attachment take only these."""

    def __init__(self, model: Any) -> None:
        self._model, self._told = model, told_shapes(model)
        #: Heads and head sizes of each layer.
        self.shapes: LayerShapes = self._told or measured_shapes(model)

    def apart(self, sizes: Sizes) -> dict[str, Any]:
        """Return the data that separates entries whose graphs take different keys and values."""
        return {"cache_length": sizes.cache_length, "layers": [list(shape) for shape in self.shapes]}

    def miss(self) -> UnservedCall | None:
        """Return why no generation can be served from now on, or None. Takes about 1 ms for 30 layers."""
        reason = reason_against(self._model)
        if reason is not None:
            return UnservedCall("config", f"changed since `attach_generate`: {reason}", "what `attach_generate` takes")
        if told_shapes(self._model) != self._told:
            return UnservedCall(
                "config",
                "changed since `attach_generate`: other sizes of keys and values",
                "those of `attach_generate`",
            )
        training = next((path for path, module in self._model.named_modules() if module.training), None)
        if training is None:
            return None
        # Graphs would draw other numbers for dropout than the model: also for filling, and in the order of a compiler.
        return UnservedCall("training", f"on in `{training or type(self._model).__name__}`", "`model.eval()`")
