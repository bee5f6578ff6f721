"""End GE in a process that has imported only a part of torchair."""

from __future__ import annotations

import atexit
import sys
from typing import Any

#: The steps of torchair's `finalize_graph_engine`, by the names in its code: Dynamo's caches, GE, static kernels.
_STEPS = ("torch", "_dynamo", "reset", "_torchair", "FinalizeGraphEngine", "uninstall_static_kernel")


def spare_dynamo_at_exit(backend: Any) -> None:
    """Let the process end without importing Dynamo only to reset it; `backend` is `torchair.core._backend`.

    torchair registers `finalize_graph_engine` to run at exit, and its first step is `torch._dynamo.reset()`. Where
    Dynamo was never imported, this module does the other steps. With a torchair that has other steps, the original
    runs.
    """
    function = backend.finalize_graph_engine
    # torchair's decorator for error messages leaves no `__wrapped__`; the function is the only thing in its closure.
    inner = [cell.cell_contents for cell in function.__closure__ or ()]
    if [getattr(getattr(item, "__code__", None), "co_names", None) for item in inner] != [_STEPS]:
        return

    def finalize() -> None:
        if "torch._dynamo" not in sys.modules and backend.finalize_graph_engine is function:
            atexit.unregister(function)
            backend._torchair.FinalizeGraphEngine()
            backend.uninstall_static_kernel()

    atexit.register(finalize)  # it runs before functions registered earlier
