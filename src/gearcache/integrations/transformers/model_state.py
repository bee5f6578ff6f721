"""Records the state of a model when it was attached, and decides whether a generation must run without graphs."""

from __future__ import annotations

from typing import Any

from gearcache.integrations.misses import UnservedCall
from gearcache.integrations.transformers.sizes import Sizes
from gearcache.integrations.transformers.slots import LayerShapes
from gearcache.integrations.transformers.support import measured_shapes, reason_against, told_shapes

#: Names of attributes that make a module in training mode draw random numbers.
_RANDOM = ("drop", "jitter")
#: Config values for classifiers, which `generate` does not use.
_UNUSED = ("classifier", "summary")


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
        place = self._random_place()
        if place is None:
            return None
        # Graphs would draw other numbers than the model: also for filling, and in the order of a compiler.
        return UnservedCall(
            "dropout", f"active: `{place[0]}` is {place[1]!r} in training mode", "`model.eval()`, or no dropout"
        )

    def _random_place(self) -> tuple[str, Any] | None:
        """Return the place of a nonzero probability in a module in training mode, and its value."""
        training = [(path, module) for path, module in self._model.named_modules() if module.training]
        for path, module in training:
            attributes = vars(module)
            if "Drop" in type(module).__name__ and attributes.get("p"):
                return f"{path}.p", attributes["p"]
            probability = _probability(attributes)
            if probability is not None:
                return f"{path}.{probability[0]}".lstrip("."), probability[1]
        if not training:
            return None
        config = vars(self._model.config.get_text_config(decoder=True))
        probability = _probability({name: value for name, value in config.items() if not name.startswith(_UNUSED)})
        return None if probability is None else (f"config.{probability[0]}", probability[1])


def _probability(attributes: dict[str, Any]) -> tuple[str, Any] | None:
    for name, value in attributes.items():
        if type(value) in (int, float) and value and any(word in name for word in _RANDOM):
            return name, value
    return None
