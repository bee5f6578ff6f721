"""The `torchair` backend: gear graphs for Ascend NPUs, through the Python half of torchair.

Our own capture, gears, evidence and dispatch stay; torchair turns one traced graph into a GE graph (mode
`max-autotune`) or an aclgraph (`npugraph_ex`, `reduce-overhead`) and writes the Python text that runs it. That text
is the artifact: a relaunch runs it and neither traces nor converts. GE compiles again in each process, unless
`ge_cache=True` keeps GE's own files beside the entry.

Developed against torch_npu 2.13.0 and an emulated GE (`tests/npu`); what only a real NPU can show is listed in
`docs/npu.md`. This is the only module that imports `torch_npu`, torchair or npugraph_ex, and only when it is used.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gearcache.errors import BackendUnavailable, GearSpecError, InputError
from gearcache.ge_cache import _compat_fake
from gearcache.ge_cache.all_gears import check_assumptions
from gearcache.ge_cache.backend import Artifact, CompileJob, Runner, Stage, StoredArtifact
from gearcache.ge_cache.compiled_graphs import graph_folder
from gearcache.ge_cache.functional import FunctionalGraph, functional_graph
from gearcache.ge_cache.ge_text import (
    CompileOnly,
    compile_only,
    gear_lists,
    graph_key,
    graph_name,
    missing_group,
    ordered_gears,
)
from gearcache.ge_cache.npu_options import config_component
from gearcache.guards.expressions import checked_expression
from gearcache.guards.generated import execute

_CODE = "kernel.py"
_GE_MODE = "max-autotune"
MODES = (_GE_MODE, "npugraph_ex", "reduce-overhead")
#: Environment variables that change what GE compiles.
_VARIABLES = ("AUTOFUSE_FLAGS",)
#: Storage formats that say nothing of the layout (ND, NCHW, NHWC, NCDHW, ...); all others are private.
_BASE_FORMATS = (-1, 0, 1, 2, 27, 30)
_LOCK_TIMEOUT = 1800.0


@dataclass(frozen=True)
class NpuOptions:
    """What a user chose: the mode, options by name, or a whole torchair config; and who switches gears."""

    mode: str = _GE_MODE
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Any = None
    gear_execution: str = "static"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            allowed = ", ".join(repr(mode) for mode in MODES)
            raise ValueError(f"option `mode` is {self.mode!r}; backend `torchair` has {allowed}")
        if self.gear_execution == "ge" and self.effective_mode != _GE_MODE:
            raise GearSpecError(f"gear_execution='ge' needs mode {_GE_MODE!r}; the mode is {self.effective_mode!r}")

    @property
    def effective_mode(self) -> str:
        """The mode of the torchair config, where one was given."""
        return str(self.config.mode.value) if self.config is not None else self.mode


class TorchairBackend:
    """Compiles through torchair and runs what it generated. One object serves one cached method."""

    name = "torchair"
    parallel = False
    allows_random = False
    allows_dynamic = True
    keeps_files = True

    def __init__(self, options: NpuOptions | None = None) -> None:
        self.options = options or NpuOptions()
        self.takes_all_gears = self.options.gear_execution == "ge"
        self._shared: dict[tuple[Any, ...], Runner] = {}

    @property
    def _is_npugraph_ex(self) -> bool:
        """Whether npugraph_ex compiles, alone: it and torchair declare the same operators (torch_npu 2.13.0)."""
        return self.options.config is None and self.options.mode != _GE_MODE

    def fingerprint(self) -> dict[str, Any]:
        """CANN, torch_npu, SoC, determinism, precision and every option that may change the code."""
        torch_npu = torch_npu_module()
        npu = torch_npu.npu
        return {
            "torch_npu": str(torch_npu.__version__),
            "cann": str(npu.utils.get_cann_version()),
            "soc": str(npu.get_device_name()),
            "deterministic_level": npu._get_deterministic_level(),
            "hf32": [bool(npu.matmul.allow_hf32), bool(npu.conv.allow_hf32)],
            "environment": {name: os.environ.get(name) for name in _VARIABLES},
            "mode": self.options.effective_mode,
            "gear_execution": self.options.gear_execution,
            "config": self._config_component(),
        }

    def _config_component(self) -> dict[str, Any]:
        if self.options.config is not None:
            return config_component(self.options.config)
        if self.options.mode == _GE_MODE:
            return config_component(self._ge_config())
        return config_component(_set_options(_npugraph_ex().CompilerConfig(), self._acl_options()))

    def check_compiler(self) -> None:
        """Import the compiler now; `BackendUnavailable` names what is missing."""
        _npugraph_ex() if self._is_npugraph_ex else torchair_module()
        if self.options.effective_mode == "reduce-overhead":
            warnings.warn(
                "mode='reduce-overhead' is deprecated by torchair; use mode='npugraph_ex'",
                DeprecationWarning,
                stacklevel=2,
            )

    def compile(self, job: CompileJob, workdir: Path, stage: Stage) -> Artifact:
        """Convert one gear (or, with `gear_execution="ge"`, all of them) and return the generated text."""
        stage("lower")
        functional = functional_graph(job, _decompositions(npugraph_ex=self._is_npugraph_ex))
        stage("compile")
        gears = gear_lists(job)
        first = len(functional.owners)
        for tensor, lists in zip(functional.examples[first:], gears, strict=False):
            if lists:
                tensor.dim_gears = lists
        with _compat_fake.tracing(functional.mode):
            text = self._convert(functional, first + len(job.inputs), graph_name(job))
        conditions = functional.symbolic.assumptions() if functional.symbolic is not None else []
        if gears:
            names, values = [name for name, _ in job.graph["symbols"]["hints"]], job.graph["symbols"]["gears"]
            check_assumptions(job.method, conditions, names, values)
            text, conditions = ordered_gears(text, [{}] * first + gears), []
        is_ge = "ge_graph = GeGraph(" in text
        if is_ge and "_is_first_run = True" not in text:
            raise RuntimeError("this torchair generates text of another form than torch_npu 2.13.0 does")
        outputs = len(job.graph["outputs"])
        header = {"ge": is_ge, "outputs": outputs, "copied_back": functional.copied_back}
        header |= {"method": job.method, "owners": functional.owners}
        header["sizes"] = [list(spec.sizes) for spec in job.inputs]
        header["geared"] = [index for index, lists in enumerate(gears) if lists]
        return Artifact(
            header,
            {_CODE: text.encode()},
            [checked_expression(item.replace("torch.sym_float", "float")) for item in conditions],
        )

    def _convert(self, functional: FunctionalGraph, first: int, name: str) -> str:
        for weight in functional.examples[first:]:
            # They are bound once: GE may take their addresses as fixed (`frozen_parameter`), aclgraph as captured.
            weight._torchair_is_parameter = True
        if self._is_npugraph_ex:
            compiled = _npugraph_ex().compile_fx(functional.module, functional.examples, self._acl_options())
        else:
            compiled = torchair_module().get_compiler(self._ge_config())(functional.module, functional.examples)
        counted = str(compiled.runner.graph.name)
        if self.options.effective_mode == _GE_MODE:
            compiled.runner.graph.name = name
        text = compiled.get_code({})
        if not isinstance(text, str):
            raise RuntimeError("torchair generates no code for this graph under these options")
        # Graphs are counted per process (`graph_1`): no text may depend on that, and no two share a name.
        return re.sub(rf"\b{re.escape(counted)}\b", name, text)

    def _acl_options(self) -> dict[str, Any]:
        """Options of npugraph_ex. Outputs are cloned unless the user says otherwise: the next call overwrites them."""
        return {"clone_output": True, **self.options.options}

    def _ge_config(self) -> Any:
        """A torchair config of our own: each dim lists its size at every gear, so gears are merged by position."""
        if self.options.config is not None:
            config = copy.deepcopy(self.options.config)
        else:
            config = _set_options(torchair_module().CompilerConfig(), self.options.options)
            config.mode = self.options.mode
        config.inference_config.dynamic_gears_merge_policy = "zip"
        if self.options.effective_mode != _GE_MODE:
            config.debug.aclgraph.enable_output_clone = True
        return config

    def load(self, artifact: StoredArtifact, attributes: Mapping[str, torch.Tensor], device: torch.device) -> Runner:
        """Run the generated text: GE loads or compiles its graph now, an aclgraph is captured at the first call."""
        code = artifact.read(_CODE)
        # The live tensors themselves: a weight whose `.data` is replaced is seen.
        weights = list(attributes.values())
        shared = (hashlib.sha256(code).digest(), *(id(tensor) for tensor in attributes.values()))
        if shared in self._shared:
            return self._shared[shared]
        torch_npu_module()
        namespace: dict[str, Any] = {"__name__": "gearcache.generated.torchair"}
        try:
            execute(code, namespace, "torchair kernel")
        except AssertionError as error:
            raise missing_group(code, error) from error
        examples = artifact.examples()
        self._check_gears(artifact.header, examples)
        if artifact.header["ge"]:
            sizes = [examples[index].size(dim) for index, dim in artifact.header["owners"]]
            self._compile_ge(namespace, artifact, code, [*sizes, *examples, *weights])
        elif "_update_static_kernel_cache_dir" in namespace and artifact.folder is not None:
            folder = artifact.folder("static_kernels")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            namespace["_update_static_kernel_cache_dir"](str(folder))
        run = _runner(namespace["kernel"], weights, artifact.header, examples)
        if self.takes_all_gears:
            self._shared[shared] = run
        return run

    def _check_gears(self, header: Mapping[str, Any], examples: Sequence[torch.Tensor]) -> None:
        """Raise `GearSpecError` for a tensor whose sizes change with the gear and that GE cannot take so."""
        method = header["method"]
        for index, (tensor, sizes) in enumerate(zip(examples, header["sizes"], strict=True)):
            if (index in header["geared"] or list(tensor.shape) != sizes) and is_private_format(tensor):
                kind = torch_npu_module().get_npu_format(tensor)
                raise GearSpecError(
                    f"`{method}`: tensor {index} changes with the gear and has the private storage format {kind}; cast "
                    "it to a base format with torch_npu.npu_format_cast"
                )
            if index in header["geared"] and tensor.device.type == "cpu":
                raise GearSpecError(
                    f"`{method}`: tensor {index} changes with the gear and is on the CPU, which GE's own gear "
                    "execution does not take; move it to the NPU, or use gear_execution='static'"
                )

    def _compile_ge(
        self, namespace: dict[str, Any], artifact: StoredArtifact, code: bytes, arguments: list[Any]
    ) -> None:
        """Let GE load and compile the graph, without running it."""
        options = namespace["local_compile_options"]
        # Sizes were checked against the gear; torchair's own check of the first call knows the traced sizes only.
        namespace["assert_size_stride"] = lambda *ignored: None
        graph = namespace["ge_graph"]
        namespace["ge_graph"] = CompileOnly(graph)
        try:
            if artifact.folder is None:
                compile_only(namespace["kernel"], arguments)
                return
            key = graph_key(code, self.fingerprint())
            with graph_folder(artifact.folder("ge"), key, _LOCK_TIMEOUT) as folder:
                if folder is not None:
                    options["ge.graph_compiler_cache_dir"] = str(folder)
                    options["ge.graph_key"] = key
                compile_only(namespace["kernel"], arguments)
        finally:
            namespace["ge_graph"] = graph


def _runner(
    kernel: Callable[..., Any], weights: list[torch.Tensor], header: Mapping[str, Any], examples: Sequence[torch.Tensor]
) -> Runner:
    """Return the call of one kernel.

    Storage formats and the deterministic level must be as they were at load: GE compiled for them.
    """
    torch_npu = torch_npu_module()
    get_format, get_level = torch_npu.get_npu_format, torch_npu.npu._get_deterministic_level
    level, no_grad = get_level(), torch.no_grad
    on_npu = [index for index, tensor in enumerate(examples) if tensor.device.type == "npu"]
    formats = [get_format(examples[index]) for index in on_npu]
    copied_back, outputs, method, owners = (header[name] for name in ("copied_back", "outputs", "method", "owners"))

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if [get_format(inputs[index]) for index in on_npu] != formats or get_level() != level:
            raise _changed(method, inputs, on_npu, formats, level)
        if owners:
            sizes = [inputs[index].size(dim) for index, dim in owners]
            return list(kernel(*sizes, *inputs, *weights))
        return list(kernel(*inputs, *weights))

    def run_without_grad(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with no_grad():
            return run(inputs)

    def run_and_copy(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        found = run_without_grad(inputs)
        for index, value in zip(copied_back, found[outputs:], strict=True):
            inputs[index].copy_(value)
        return found[:outputs]

    if copied_back:
        return run_and_copy
    # GE knows no autograd; the operators of an aclgraph would record the weights that require grad.
    return run if header["ge"] else run_without_grad


def _changed(method: str, inputs: list[torch.Tensor], on_npu: list[int], formats: list[int], level: int) -> InputError:
    torch_npu = torch_npu_module()
    for index, wanted in zip(on_npu, formats, strict=True):
        found = torch_npu.get_npu_format(inputs[index])
        if found != wanted:
            way_out = "cast it with torch_npu.npu_format_cast, or call `.refresh()` on the cached method"
            return InputError(
                method, f"tensor {index}", f"of storage format {found}", f"{wanted}, as at load; {way_out}"
            )
    found = torch_npu.npu._get_deterministic_level()
    return InputError(
        method, "deterministic level", str(found), f"{level}, as at load; call `.refresh()` after a change"
    )


def is_private_format(tensor: torch.Tensor) -> bool:
    """Whether an NPU tensor lies in memory in another order than its sizes and strides say (FRACTAL_NZ, ...)."""
    return tensor.device.type == "npu" and torch_npu_module().get_npu_format(tensor) not in _BASE_FORMATS


def _decompositions(*, npugraph_ex: bool) -> dict[Any, Callable[..., Any]]:
    """Return the compiler's own table; also make the fixes of meta functions that it makes before its first compile."""
    package = "npugraph_ex" if npugraph_ex else "torchair"
    utilities = importlib.import_module(f"{package}._utils")
    found: dict[Any, Callable[..., Any]] = utilities.get_npu_default_decompositions()
    config = (_npugraph_ex() if npugraph_ex else torchair_module()).CompilerConfig()
    utilities.add_npu_patch(found, config)
    return found


def _set_options(config: Any, options: Mapping[str, Any]) -> Any:
    """Set options by dotted name; torchair's own errors name what is allowed."""
    for name, value in options.items():
        *folders, last = name.split(".")
        target = config
        for folder in folders:
            target = getattr(target, folder, None)
        if target is None or not hasattr(target, last):
            known = ", ".join(sorted(item for item in vars(config) if not item.startswith("_")))
            raise ValueError(f"option {name!r} is unknown to {type(config).__module__}.CompilerConfig; it has {known}")
        setattr(target, last, value)
    return config


# -- imports ---------------------------------------------------------------------------------------------------


def missing() -> str | None:
    """Return what keeps this backend from running here, as one sentence, or None; `gearcache doctor` prints it."""
    try:
        torchair_module()
    except BackendUnavailable as error:
        return error.missing
    return None


def torch_npu_module() -> Any:
    """Import and return torch_npu; `BackendUnavailable` names what is missing."""
    module = sys.modules.get("torch_npu")
    if module is not None and hasattr(module, "npu"):
        return module
    try:
        import torch_npu
    except ModuleNotFoundError as error:
        if error.name != "torch_npu":
            raise BackendUnavailable("torchair", f"torch_npu needs the package `{error.name}`, {_HOW}") from error
        raise BackendUnavailable("torchair", f"the package torch_npu is not installed, {_HOW}") from None
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BackendUnavailable(
            "torchair",
            f"torch_npu is installed but cannot be imported ({reason}); its libraries come with CANN: install the CANN "
            f"toolkit of this torch_npu and run its set_env.sh, {_HOW}",
        ) from error
    return torch_npu


_HOW = "see `gearcache doctor`; install `gearcache[npu]`, or use backend='inductor' or 'eager' on CPU"


def torchair_module() -> Any:
    """Import and return torchair; `BackendUnavailable` names what is missing."""
    torch_npu_module()
    try:
        import torchair

        torchair.get_compiler  # noqa: B018 - torch_npu puts a lazy module in place, which fails at the first use
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BackendUnavailable("torchair", f"torchair cannot be imported ({reason}), {_HOW}") from error
    return torchair


def _npugraph_ex() -> Any:
    torch_npu_module()
    try:
        import npugraph_ex
    except ImportError as error:
        raise BackendUnavailable("torchair", f"npugraph_ex cannot be imported ({error}), {_HOW}") from error
    return npugraph_ex
