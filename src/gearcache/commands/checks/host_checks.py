"""Checks of this host beyond the cache's folder: Python, torch, the compiler, devices, settings."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gearcache.cache.admin.health import HealthCheck, guarded_all
from gearcache.cache.layout import REMOTES_VARIABLE as REMOTES
from gearcache.cache.layout import VARIABLE_PREFIXES
from gearcache.cache.remote.urls import masked
from gearcache.child_process import python_command, python_environment
from gearcache.commands.checks.wrong_variables import told_of_threads, wrong_variables
from gearcache.errors import GearcacheError
from gearcache.ge_cache.workers.scratch import scratch_folder
from gearcache.options import KEY_FILE_VARIABLE as KEY_FILE
from gearcache.serving.miss.host_faults import TEMPORARY_REMEDY
from gearcache.torch_names import check_names
from gearcache.torch_release import NEWEST, check_release, is_tested
from gearcache.variables import told, unknown_variables
from gearcache.version import __version__

_COMPILERS = ("g++", "clang++", "c++")
_PROBE = '#include <omp.h>\n#include <cstdio>\nextern "C" int probe() { return omp_get_max_threads(); }\n'
_VARIABLES = ("CXX", "OMP_NUM_THREADS")


def check_host(environ: Mapping[str, str]) -> list[HealthCheck]:
    """Try torch, the C++ compiler and the devices. Never raises; imports torch."""
    checks = [
        HealthCheck("gearcache", True, f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    ]
    torch_check = _check_torch()
    checks.append(torch_check)
    checks += guarded_all("compiler", lambda: [_check_compiler(environ)])
    if torch_check.ok:
        checks += guarded_all("devices", lambda: [_check_cpu(environ), _check_cuda(), _check_npu(environ)])
    checks.append(_check_metrics())
    return checks


def check_settings(environ: Mapping[str, str]) -> tuple[list[HealthCheck], Path | None]:
    """Check the environment variables; also returns the key file of signatures, if one is set."""
    unknown = unknown_variables(environ)
    names = sorted(name for name in environ if name.startswith(VARIABLE_PREFIXES) and name not in unknown)
    values = {name: environ[name] for name in names}
    values |= {name: environ[name] for name in _VARIABLES if environ.get(name)}
    problems = wrong_variables(environ)
    remedy = "set the variable to an allowed value, or unset it; until then the default holds"
    values |= {REMOTES: masked(values[REMOTES])} if REMOTES in values else {}
    text = ", ".join(f"{name}={value}" for name, value in values.items()) or "no variable is set"
    checks = [HealthCheck("settings", False, each, remedy) for each in problems] or [
        HealthCheck("settings", True, text)
    ]
    checks += [HealthCheck("settings", False, told(*each), "rename or unset it") for each in unknown.items()]
    return checks, Path(environ[KEY_FILE]) if environ.get(KEY_FILE) else None


def _check_torch() -> HealthCheck:
    try:
        import torch
    except Exception as error:  # a broken install raises anything
        remedy = f"install torch=={NEWEST}.*, see https://pytorch.org/get-started/locally"
        return HealthCheck("torch", False, f"cannot be imported: {type(error).__name__}: {error}", remedy)
    version = str(torch.__version__)
    if is_tested(version):
        return HealthCheck("torch", True, version)
    text, remedy = f"{version}, which gearcache is not tested with", f"install torch=={NEWEST}.*"
    try:
        check_release(version)
        check_names(version)
        from gearcache.building.canary import check_probes  # the import fails if torch lacks a name

        check_probes(version)
    except GearcacheError as error:
        return HealthCheck("torch", False, f"{text}: {error}", remedy)
    return HealthCheck("torch", True, f"{text}, and which has the names that it uses and calls its probes")


def _check_compiler(environ: Mapping[str, str]) -> HealthCheck:
    """Compile a small shared object with OpenMP, as every gear needs."""
    remedy = "install g++ with OpenMP or set CXX; without one this host can load entries, not compile them"
    names = (environ["CXX"],) if environ.get("CXX") else _COMPILERS
    compiler = next((path for name in names if (path := shutil.which(name))), None)
    if compiler is None:
        return HealthCheck("compiler", False, f"none found: {', '.join(names)}", remedy)
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder())
        except OSError as error:
            return HealthCheck(
                "compiler", False, f"`{compiler}` has no place for its files: {error.strerror}", TEMPORARY_REMEDY
            )
        source = Path(folder, "probe.cpp")
        source.write_text(_PROBE)
        command = [compiler, "-shared", "-fPIC", "-fopenmp", str(source), "-o", str(Path(folder, "probe.so"))]
        try:
            probe = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
            version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return HealthCheck("compiler", False, f"`{compiler}` cannot run: {error}", remedy)
    if probe.returncode != 0:
        reason = next(iter(probe.stderr.strip().splitlines()), f"exit code {probe.returncode}")
        return HealthCheck("compiler", False, f"`{compiler}` cannot compile with OpenMP: {reason}", remedy)
    return HealthCheck(
        "compiler", True, f"`{compiler}`, {next(iter(version.stdout.splitlines()), 'of unknown version')}"
    )


def _check_cpu(environ: Mapping[str, str]) -> HealthCheck:
    import torch

    from gearcache.ge_cache.inductor.targets import NATIVE, host_targets

    capability, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    text = f"{capability}, {threads} threads; both are in the key of compiled entries"
    if levels := [name for name in host_targets() if name != NATIVE]:
        text += f", under a target ({', '.join(levels)}) the threads alone"
    if advice := told_of_threads(environ, threads):
        return HealthCheck("cpu", None, text, advice)
    if not environ.get("OMP_NUM_THREADS"):
        return HealthCheck("cpu", None, text, "set OMP_NUM_THREADS where hosts with other core counts share a cache")
    return HealthCheck("cpu", True, text)


def _check_cuda() -> HealthCheck:
    import torch

    if not torch.cuda.is_available():
        return HealthCheck("cuda", None, "no device")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return HealthCheck("cuda", None, f"{', '.join(names)}; no compiling backend yet, use backend='eager' there")


def _check_npu(environ: Mapping[str, str]) -> HealthCheck:
    """Look for torch_npu, CANN and a device."""
    if importlib.util.find_spec("torch_npu") is None:
        return HealthCheck("npu", None, "torch_npu is not installed")
    try:
        version = importlib.metadata.version("torch_npu")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    home = environ.get("ASCEND_HOME_PATH") or environ.get("ASCEND_TOOLKIT_HOME")
    if not home or not Path(home).is_dir():
        remedy = "install CANN and source its set_env.sh, which sets ASCEND_HOME_PATH"
        return HealthCheck("npu", False, f"torch_npu {version}, but no CANN", remedy)
    # In a separate process: a driver that crashes must not end this one, and nothing here changes torch.
    program = "import torch, torch_npu; print(torch.get_device_module('npu').device_count())"
    try:
        process = subprocess.run(
            python_command(program), env=python_environment(), capture_output=True, text=True, timeout=120, check=False
        )
        devices = int(process.stdout.split()[-1]) if process.returncode == 0 else -1
        problem = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        devices, problem = -1, f"{type(error).__name__}: {error}"
    if devices < 0:
        remedy = "use the torch_npu that its release notes name for this CANN and this torch"
        return HealthCheck("npu", False, f"torch_npu {version}, CANN in `{home}`: {problem}", remedy)
    if not devices:
        remedy = "check `npu-smi info`, and that /dev/davinci* is passed to the container"
        return HealthCheck("npu", False, f"torch_npu {version}, CANN in `{home}`, no device", remedy)
    return HealthCheck("npu", True, f"torch_npu {version}, CANN in `{home}`, {devices} devices")


def _check_metrics() -> HealthCheck:
    if importlib.util.find_spec("prometheus_client") is None:
        return HealthCheck("metrics", None, "prometheus_client is not installed: pip install 'gearcache[metrics]'")
    return HealthCheck("metrics", True, f"prometheus_client {importlib.metadata.version('prometheus_client')}")
