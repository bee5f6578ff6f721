"""`dynamo_export`: a model as an offline graph for Ascend's ATC, through torchair's own export.

torchair mutates the shared default config, goes on where an export failed, and writes straight into the target. Here
the config is a copy, a failure is an exception, and the folder appears whole or not at all.
"""

from __future__ import annotations

import copy
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from gearcache.errors import CompileError, GearSpecError
from gearcache.ge_cache.npu.ascend import torchair_module
from gearcache.guards.arguments import find_tensors

logger = logging.getLogger("gearcache")
#: What stands in place of `.air` where no CANN has read the graph back: a serialised ModelDef.
UNCHECKED_SUFFIX = ".modeldef-not-an-air"


def dynamo_export(
    *args: Any,
    model: torch.nn.Module,
    export_path: str | os.PathLike[str] = "export_file",
    export_name: str = "export",
    dynamic: bool = False,
    config: Any = None,
    **kwargs: Any,
) -> None:
    """Export one call of `model` into the folder `export_path`: `<name>.air`, `dynamo.pbtxt`, weight files.

    In a process group each rank writes `<name><rank>.air` and `rank_<n>/`, and with
    `config.export.experimental.auto_atc_config_generated` rank 0 also `model_relation_config.json` and
    `numa_config.json`. Without CANN the graph is stored as `<name>.modeldef-not-an-air`: it is what torchair hands
    over, and no ATC has accepted it.

    `FileExistsError` when the files of this rank exist already, `ValueError` for a symbolic link or another mode than
    `max-autotune`, `GearSpecError` for inputs with gears, `CompileError` when torchair cannot convert the model.
    """
    name = os.path.split(export_name)[-1]
    target = Path(export_path)
    rank = torch.distributed.get_rank() if _is_distributed() else None
    _check(target, name, rank, args, kwargs)
    torchair = torchair_module()
    own = copy.deepcopy(config) if config is not None else torchair.CompilerConfig()
    if own.mode.value != "max-autotune":
        raise ValueError(f"dynamo_export: config.mode is {own.mode.value!r}; only 'max-autotune' can be exported")
    if own.experimental_config.frozen_parameter:
        raise ValueError(
            "dynamo_export: config.experimental_config.frozen_parameter is True; an export freezes nothing"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _export(torchair, own, model, args, kwargs, folder, name, target, dynamic)
        _mark_unchecked(folder, name, rank)
        _publish(folder, target, rank)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _air(name: str, rank: int | None) -> str:
    return f"{name}{rank if rank is not None else ''}.air"


def _check(target: Path, name: str, rank: int | None, args: Any, kwargs: Any) -> None:
    air = target / _air(name, rank)
    for path in (target, air):
        if path.is_symlink():
            raise ValueError(f"dynamo_export: `{path}` is a symbolic link; give the folder that it points to")
    own = [air, air.with_suffix(UNCHECKED_SUFFIX), target / (f"rank_{rank}" if rank is not None else "dynamo.pbtxt")]
    present = [path for path in own if path.exists()]
    if present:
        raise FileExistsError(f"dynamo_export: `{present[0]}` exists; remove it, or give another export_path")
    tensors = find_tensors({"args": args}) | find_tensors(kwargs)
    geared = [path for path, tensor in tensors.items() if getattr(tensor, "dim_gears", None)]
    if geared:
        raise GearSpecError(f"dynamo_export: `{geared[0]}` has gears; an offline graph has none, pass it without")


def _export(
    torchair: Any,
    config: Any,
    model: torch.nn.Module,
    args: Any,
    kwargs: Any,
    folder: Path,
    name: str,
    target: Path,
    dynamic: bool,
) -> None:
    """Run torchair's export into `folder`; it ends a successful one by an exception."""
    success = sys.modules["torchair._ge_concrete_graph.fx2ge_converter"].ExportSuccess
    config.export.export_mode = True
    config.export.export_path_dir = str(folder)
    config.export.export_name = name
    config.experimental_config.enable_ref_data = True
    weights = [*model.named_buffers(), *model.named_parameters()]
    config.export.weight_name = {id(tensor): path for path, tensor in weights}
    torch.compiler.reset()
    compiled = torch.compile(
        model, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True, dynamic=dynamic
    )
    try:
        with torch.no_grad():
            compiled(*args, **kwargs)
    except success:
        return
    except Exception as error:
        cause = error
        while cause is not None and not isinstance(cause, success):
            cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
        if cause is None:
            method = f"{type(model).__name__}.forward"
            raise CompileError(method, "of the export", f"{type(error).__name__}: {error}") from error
        return
    finally:
        torch.compiler.reset()
    raise CompileError(f"{type(model).__name__}.forward", "of the export", f"no graph was exported to `{target}`")


def _mark_unchecked(folder: Path, name: str, rank: int | None) -> None:
    """Without CANN nothing has read the graph: give it a name that nobody takes for an accepted `.air`."""
    air = folder / _air(name, rank)
    if not air.exists():
        raise CompileError(name, "of the export", f"torchair wrote no `{air.name}`")
    native = sys.modules.get("torchair.core._torchair")
    if getattr(native, "__file__", None) is None:
        unchecked = air.with_suffix(UNCHECKED_SUFFIX)
        air.replace(unchecked)
        logger.warning(
            "%s is the ModelDef that torchair hands to CANN; no CANN is here, so it is no .air that ATC has accepted",
            unchecked.name,
        )


def _publish(folder: Path, target: Path, rank: int | None) -> None:
    """Put the finished files in place: at once into a new folder, one by one beside those of other ranks."""
    _replace_paths(folder, target)
    if rank is None and not target.exists():
        folder.chmod(0o750)
        folder.replace(target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        path.replace(target / path.name)


def _replace_paths(folder: Path, target: Path) -> None:
    """Name the final place of the weight files, which the graph names by path, in both of its forms."""
    old, new = str(folder), str(target)
    for path in folder.rglob("*"):
        if path.name == "dynamo.pbtxt":
            path.write_text(path.read_text().replace(old, new))
        elif path.name.endswith((".air", UNCHECKED_SUFFIX)):
            _rename_files(path, old, new)


def _rename_files(path: Path, old: str, new: str) -> None:
    data = path.read_bytes()
    if old.encode() not in data:
        return
    model_type = sys.modules["torchair._ge_concrete_graph.ge_ir_pb2"].ModelDef
    model = model_type()
    model.ParseFromString(data)
    for graph in model.graph:
        for op in graph.op:
            for attribute in op.attr.values():
                if attribute.WhichOneof("value") == "s" and old.encode() in attribute.s:
                    attribute.s = attribute.s.replace(old.encode(), new.encode())
    path.write_bytes(model.SerializeToString())
