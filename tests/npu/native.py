"""A stand-in for torchair's native module `torchair.core._torchair`, in front of the GE emulator.

It has what torchair's Python half uses, keeps GE's documented rules (gears, compile cache, one initialisation), and
counts what happens, so that tests can tell a compile from a load.
"""

from __future__ import annotations

import enum
import os
import signal
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.npu import static_kernels
from tests.npu.emulator import GeError, Program

#: What GE did in this process: `initialize`, `load`, `compile`, `cached` (taken from the compile cache).
COUNTS: Counter[str] = Counter()
#: The options of every graph that was loaded, by graph name.
OPTIONS: list[dict[str, str]] = []
_CACHE_DIR, _CACHE_KEY = "ge.graph_compiler_cache_dir", "ge.graph_key"
#: Set in the environment to kill the process right after GE wrote its own cache file.
KILL_AFTER_WRITE = "EMULATED_GE_KILL_AFTER_WRITE"


def host(tensor: Tensor) -> Tensor:
    """Return the same memory as a CPU tensor."""
    return tensor if tensor.device.type == "cpu" else torch.ops.emulated_npu.host(tensor)


class TorchNpuGraphBase:
    """One graph of GE: load, compile, run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._program: Program | None = None
        self._model = b""

    def load(
        self,
        model: bytes,
        options: dict[str, str],
        placements: Sequence[int],
        output_dtypes: Sequence[int],
        executor: int,
    ) -> None:
        if not COUNTS["initialize"]:
            raise GeError("GE is not initialised")
        wrong = {key: value for key, value in options.items() if not isinstance(value, str)}
        if wrong:
            raise TypeError(f"options must be strings: {wrong}")
        COUNTS["load"] += 1
        OPTIONS.append(dict(options))
        self._model, self._options, self._placements = bytes(model), dict(options), list(placements)
        self._gears: list[dict[str, list[int]]] = []

    def set_hint_shape(self, inputs: Any, outputs: Any) -> None:
        self._hints = (inputs, outputs)

    def compile(self) -> None:
        folder, key = self._options.get(_CACHE_DIR), self._options.get(_CACHE_KEY)
        if folder and key:
            self._model = self._through_cache(Path(folder), key)
        else:
            COUNTS["compile"] += 1
        self._program = Program(self._model)
        self._gears = _gear_shapes(self._options)

    def _through_cache(self, folder: Path, key: str) -> bytes:
        """GE's rule: an existing key is loaded without comparing the graphs; the folder must exist."""
        if not folder.is_dir():
            raise GeError(f"{_CACHE_DIR} {folder} does not exist")
        if not key.replace("_", "").replace("-", "").isalnum() or len(key) > 128:
            raise GeError(f"{_CACHE_KEY} {key!r} is not [A-Za-z0-9_-]{{1,128}}")
        index = folder / f"{key}.idx"
        if index.exists():
            COUNTS["cached"] += 1
            return (folder / index.read_text()).read_bytes()
        COUNTS["compile"] += 1
        (folder / f"{key}_0.om").write_bytes(self._model)
        index.write_text(f"{key}_0.om")
        if os.environ.get(KILL_AFTER_WRITE):
            os.kill(os.getpid(), signal.SIGKILL)
        return self._model

    def run(self, arguments: tuple[Sequence[Tensor], Sequence[Tensor | None], Any]) -> list[Tensor]:
        inputs, assigned, _ = arguments
        if self._program is None:
            raise GeError("the graph is not compiled")
        for index, (tensor, placement) in enumerate(zip(inputs, self._placements, strict=True)):
            if (tensor.device.type == "cpu") != (placement == 0):
                raise GeError(f"input {index} is on {tensor.device}, placed on {'cpu' if placement == 0 else 'npu'}")
        on_host = [host(tensor) for tensor in inputs]
        self._program.check_inputs(on_host)
        self._check_gears(on_host)
        device = next((tensor.device for tensor in inputs if tensor.device.type != "cpu"), None)
        outputs = self._program.run(on_host)
        result = []
        for index, value in enumerate(outputs):
            target = assigned[index] if index < len(assigned) else None
            if target is not None:
                host(target).copy_(value)
                result.append(target)
            else:
                result.append(value.clone() if device is None else value.to(device))
        return result

    def _check_gears(self, inputs: Sequence[Tensor]) -> None:
        if not self._gears:
            return
        assert self._program is not None
        names = self._program.input_names()
        found = {name: list(tensor.shape) for name, tensor in zip(names, inputs, strict=True)}
        if found not in self._gears:
            raise GeError(f"shapes {found} are no gear of {self._options['ge.dynamicDims']}")


def _gear_shapes(options: dict[str, str]) -> list[dict[str, list[int]]]:
    """Return the shapes of all inputs at each gear, from `ge.inputShape` and `ge.dynamicDims`."""
    if "ge.dynamicDims" not in options:
        return []
    templates = {}
    for item in options["ge.inputShape"].split(";"):
        name, _, sizes = item.partition(":")
        templates[name] = [int(size) for size in sizes.split(",") if size]
    gears = []
    for text in options["ge.dynamicDims"].split(";"):
        values = iter(int(value) for value in text.split(","))
        gears.append({name: [next(values) if size == -1 else size for size in row] for name, row in templates.items()})
        if next(values, None) is not None:
            raise GeError(f"gear {text} has more values than ge.inputShape has dims")
    return gears


def make_module() -> types.ModuleType:
    """Return the module to stand at `sys.modules["torchair.core._torchair"]`."""
    module = types.ModuleType("torchair.core._torchair")

    def initialize(options: dict[str, str]) -> None:
        COUNTS["initialize"] += 1

    def export(model: bytes, options: dict[str, str]) -> None:
        """Write what is handed over. The real one reads it as a `ge::Graph` first and may add fields."""
        Path(options["export_path_dir"], options["export_name"]).write_bytes(model)

    names = ("BOOL", "UINT8", "INT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "BF16", "FLOAT16")
    names += ("FLOAT32", "FLOAT64", "COMPLEX64", "COMPLEX128")
    contents: dict[str, Any] = {
        "TorchNpuGraphBase": TorchNpuGraphBase,
        "TorchDataType": enum.Enum("TorchDataType", names),
        "InitializeGraphEngine": initialize,
        "FinalizeGraphEngine": lambda: None,
        "export": export,
        "GetSocName": lambda: "Emulated910",
        "AclopStartDumpArgs": lambda kind, folder: static_kernels.start_dump(folder),
        "AclopStopDumpArgs": lambda kind: static_kernels.stop_dump(),
    }
    for name, value in contents.items():
        setattr(module, name, value)
    return module
