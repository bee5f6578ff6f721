"""The emulated Ascend host: an `npu` device in host memory, stand-ins for `torch_npu` and torchair's native module.

`install()` must run before torchair is imported. The Python half of torchair and npugraph_ex is the real one, from
the torch_npu wheel, unchanged. Nothing here shows what a real NPU, CANN or GE does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import runpy
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

from tests.npu import graphs, native

_SOURCE = Path(__file__).with_name("device.cpp")
CANN_VERSION = "8.5.0-emulated"
#: Private storage format of tensors that a test marked so, by data pointer; anything else is ND.
FORMATS: dict[int, int] = {}
_ND = 2
#: What `_npu_setOption` has set.
OPTIONS: dict[str, bytes] = {}


def install() -> None:
    """Make `npu` a device of this process and torchair importable. Safe to call twice."""
    if "torchair.core._torchair" in sys.modules:
        return
    torch.ops.load_library(str(_device_library()))
    torch.utils.rename_privateuse1_backend("npu")
    npu = _npu_module()
    torch._register_device_module("npu", npu)
    torch.utils.generate_methods_for_privateuse1_backend(for_module=False, for_packed_sequence=False, for_storage=True)
    for name, module in _torch_npu_modules(npu).items():
        sys.modules[name] = module
    sys.path.insert(0, str(wheel_folder() / "dynamo"))
    sys.modules["torchair.core._torchair"] = native.make_module()
    sys.modules["torchair.core._npu_graph_executor"] = _executor_module()
    _define_operators()


def wheel_folder() -> Path:
    """The `torch_npu` folder of the installed wheel; its `__init__` is never run."""
    present = sys.modules.get("torch_npu")
    spec = importlib.util.find_spec("torch_npu") if present is None else present.__spec__
    assert spec is not None, "the torch_npu wheel is not installed"
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _device_library() -> Path:
    """Compile the device once per torch and source; `$CXX` or g++."""
    digest = hashlib.sha256(_SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"gearcache-emulated-npu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"device-{digest}.so"
    if not library.exists():
        root = Path(torch.__file__).parent
        include = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include"]
        fresh = library.with_suffix(f".{os.getpid()}")
        command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-fPIC", "-shared", "-w"]
        command += [f"-I{path}" for path in include] + [str(_SOURCE), "-o", str(fresh)]
        command += [f"-L{root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
        subprocess.run(command, check=True)
        fresh.replace(library)
    return library


def _npu_module() -> types.ModuleType:
    """`torch.npu`, as far as torch, torchair and npugraph_ex ask it."""
    module: Any = types.ModuleType("torch_npu.npu")
    module.__path__ = []
    module.__spec__ = importlib.util.spec_from_loader("torch_npu.npu", None)
    module._deterministic_level = 0

    contents: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "_lazy_init": lambda: None,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: "Ascend910B-emulated",
        "manual_seed_all": lambda seed: None,
        "_get_deterministic_level": lambda: module._deterministic_level,
        "matmul": _Arithmetic("ALLOW_MATMUL_HF32", default=False),
        "conv": _Arithmetic("ALLOW_CONV_HF32", default=True),
        **graphs.members(),
    }
    for name, value in contents.items():
        setattr(module, name, value)
    return module


def _torch_npu_modules(npu: types.ModuleType) -> dict[str, types.ModuleType]:
    """`torch_npu` and the modules below it that are imported by name."""
    folder = wheel_folder()
    root: Any = types.ModuleType("torch_npu")
    root.__path__ = [str(folder)]
    root.__file__ = str(folder / "__init__.py")
    root.__spec__ = importlib.util.spec_from_loader("torch_npu", None, is_package=True)
    root.__spec__.submodule_search_locations = [str(folder)]
    root.__version__ = runpy.run_path(str(folder / "version.py"))["__version__"]
    root.npu = npu
    root.get_npu_format = lambda tensor: FORMATS.get(tensor.data_ptr(), _ND)
    root._C = graphs.native_calls()
    root._C._npu_getOption = OPTIONS.get
    utilities: Any = types.ModuleType("torch_npu.npu.utils")
    utilities.get_cann_version = lambda module="CANN": CANN_VERSION
    utilities._is_gte_cann_version = lambda version, module="CANN": _version(version) <= _version(CANN_VERSION)
    npu.utils = utilities
    general: Any = types.ModuleType("torch_npu.utils")
    general.__path__ = [str(folder / "utils")]
    errors: Any = types.ModuleType("torch_npu.utils._error_code")
    errors.ErrCode = _AnyCode()
    errors.graph_error = errors.pta_error = errors.ops_error = lambda code: ""
    dynamo: Any = types.ModuleType("torch_npu.dynamo")
    dynamo.__path__ = []
    guard: Any = types.ModuleType("torch_npu.dynamo._deterministic_guard")
    guard.install_npu_deterministic_level_guard = lambda: None
    distributed: Any = types.ModuleType("torch_npu.distributed")
    distributed._is_support_hccl_comm_name = lambda: True
    root.utils, root.dynamo, root.distributed = general, dynamo, distributed
    modules = (root, npu, utilities, general, errors, dynamo, guard, distributed)
    return {module.__name__: module for module in modules}


class _Arithmetic:
    """`torch.npu.matmul` or `torch.npu.conv`: settings that live in native options, as in torch_npu."""

    def __init__(self, option: str, *, default: bool) -> None:
        self._option, self._default = option, default

    @property
    def allow_hf32(self) -> bool:
        value = OPTIONS.get(self._option, b"")
        return value == b"enable" if value else self._default

    @allow_hf32.setter
    def allow_hf32(self, value: bool) -> None:
        OPTIONS[self._option] = b"enable" if value else b"disable"

    @property
    def cube_math_type(self) -> int | None:
        value = OPTIONS.get("CUBE_MATH_TYPE")
        return int(value) if value else None

    @cube_math_type.setter
    def cube_math_type(self, value: int | None) -> None:
        OPTIONS["CUBE_MATH_TYPE"] = b"" if value is None else str(value).encode()


class _AnyCode:
    """Error codes by any name: they are only printed."""

    def __getattr__(self, name: str) -> str:
        return name


def _version(text: str) -> tuple[int, ...]:
    numbers = [part for part in text.replace("RC", "").split("-")[0].split(".") if part.isdigit()]
    return tuple(int(part) for part in numbers)


def _executor_module() -> types.ModuleType:
    module: Any = types.ModuleType("torchair.core._npu_graph_executor")
    module.GetNpuStorageSizes = lambda tensor: list(tensor.shape)
    return module


def _define_operators() -> None:
    """Declare the `npu` operators that torchair's patterns name, from the wheel's own list, without kernels."""
    from tests.npu.schemas import define_operators

    define_operators(wheel_folder())
