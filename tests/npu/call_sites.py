"""Programs as users of torchair wrote them (`research/torchair.md`, section 4), after `install()` alone.

Each is a scenario, see `tests/support/scenarios.py`. Engines are shortened to what reaches torchair.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

import torch
import torchair as tng

from gearcache.compat import torchair as compat
from tests.npu.decoders import Decoder, Size
from tests.support.scenarios import Run

NPU = "npu"
SIZE = Size(layers=1)


def _model(cls: type[Decoder] = Decoder) -> Any:
    return cls(SIZE).to(NPU).eval()


def _step(of: Run, label: str, cached: Callable[..., Any], model: Decoder, batch: int, *, static: bool = False) -> None:
    """One decode step beside the model's own, caches included."""
    ours, theirs = (model.caches(batch, NPU, torch.float32) for _ in range(2))
    ids, position = torch.randint(0, SIZE.vocabulary, (batch, 1)).to(NPU), torch.zeros(batch).long().to(NPU)
    if static:
        for tensor in (ids, position, *(tensor for pair in ours for tensor in pair)):
            torch._dynamo.mark_static(tensor)
    with torch.no_grad():
        expected = model.decode(ids, position, theirs)
        of.check(f"{label}, logits", cached(ids, position, ours).cpu(), expected.cpu())
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        of.check(f"{label}, caches {index}", [item.cpu() for item in mine], [item.cpu() for item in other])


def vllm_ascend_has_a_method_per_batch_size(run: Run) -> None:
    """`torchair_model_runner.py` of v0.11.0: copies of the code under other names, twice, then `reset()`."""
    compat.install()

    class CausalLM(Decoder):
        compiled: dict[int, Any]

        def compiled_model(self, batch: int) -> Any:
            if batch not in self.compiled:
                code = self.decode.__func__.__code__  # type: ignore[attr-defined]
                name = f"{type(self).__name__}_forward_with_batch_size_{batch}"
                function = types.FunctionType(code.replace(co_name=name), Decoder.decode.__globals__, name)
                setattr(self, name, function.__get__(self, CausalLM))
                config = tng.CompilerConfig()
                config.experimental_config.frozen_parameter = True
                config.experimental_config.tiling_schedule_optimize = True
                self.compiled[batch] = run.watch(
                    tng.inference.cache_compile(
                        getattr(self, name),
                        dynamic=True,
                        fullgraph=True,
                        cache_dir=os.environ["TORCHAIR_CACHE_HOME"],
                        config=config,
                        ge_cache=False,
                    )
                )
            return self.compiled[batch]

    model = _model(CausalLM)
    for again in range(2):
        model.compiled = {}
        for batch in (4, 2):
            _step(run, f"turn {again}, batch {batch}", model.compiled_model(batch), model, batch, static=True)
        torch._dynamo.reset()


def cann_recipes_keep_ges_files(run: Run) -> None:
    """`executor/utils/graph_utils.py`: static, `ge_cache=True`, guards skipped by a stance after the warm-up."""
    compat.install()
    model = _model()
    config = tng.CompilerConfig()
    config.mode = "max-autotune"
    config.experimental_config.frozen_parameter = True
    decode = run.watch(
        tng.inference.cache_compile(
            model.decode,
            cache_dir=os.path.join(os.environ["TORCHAIR_CACHE_HOME"], "compile_cache"),  # noqa: PTH118
            config=config,
            dynamic=False,
            fullgraph=True,
            ge_cache=True,
        )
    )
    _step(run, "warm-up", decode, model, 2)
    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        _step(run, "served", decode, model, 2)
