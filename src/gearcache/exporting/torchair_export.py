"""`dynamo_export`: a model as an offline graph for Ascend's ATC, through torchair's own export.

torchair mutates the shared default config, continues after a failed export, and writes directly into the target. Here
the config is a copy, a failure is an exception, and the folder is replaced as a whole or not at all.
"""

from __future__ import annotations

import copy
import inspect
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch

from gearcache.errors import CompileError, GearSpecError, NotExportable
from gearcache.exporting.export_folder import NEW, check_place, publish, take_over, work_folder
from gearcache.exporting.export_ranks import ExportRanks, all_ranks
from gearcache.ge_cache.npu.ascend import torchair_module
from gearcache.ge_cache.private_torch.dynamo import dynamo_errors
from gearcache.guards.arguments import find_tensors
from gearcache.guards.evidence.names import a_type

logger = logging.getLogger("gearcache")
#: The suffix in place of `.air` if no CANN has read the graph back: a serialised ModelDef.
UNCHECKED_SUFFIX = ".modeldef-not-an-air"


def dynamo_export(
    *args: Any,
    model: torch.nn.Module,
    export_path: str | os.PathLike[str] = "export_file",
    export_name: str = "export",
    dynamic: bool = False,
    config: Any = None,
    overwrite: bool = False,
    **kwargs: Any,
) -> None:
    """Export one call of `model` into the folder `export_path`: `<name>.air`, `dynamo.pbtxt`, weight files.

    The export is written beside the folder and moved there as a whole. A folder with any content is refused;
    `overwrite=True` replaces it with all its content.

    In a process group every rank must call it. Each writes `<name><rank>.air` and `rank_<n>/`, and with
    `config.export.experimental.auto_atc_config_generated` rank 0 also `model_relation_config.json` and
    `numa_config.json`; ranks of one folder publish together. Without CANN the graph is stored as
    `<name>.modeldef-not-an-air`, which is torchair's output; no ATC has accepted it.

    `TypeError` is for a model that is not a module and for arguments that its `forward` does not take, `ValueError` for
    an invalid file name, a symbolic link, a mount point, the working folder and another mode than `max-autotune`,
    `FileExistsError` for a folder that is not empty, `NotExportable` for a model that is not a single graph, or raises,
    `GearSpecError` for inputs with gears, `CompileError` when torchair cannot convert the model or another rank failed,
    `TimeoutError` when another rank does not come.
    """
    _check_arguments(model, export_name, args, kwargs)
    name, target = export_name, Path(export_path)
    ranks = all_ranks(f"{type(model).__name__}.forward")
    with ranks.reporting():
        place = Path(os.path.abspath(target))  # not `resolve`, which would follow links
        _check(target, name, ranks.rank, args, kwargs)
        check_place(place, overwrite=overwrite)
        torchair, export_config = _config(config)
        with work_folder(place) as work, ranks.reporting():
            folder = work / NEW
            _export(torchair, export_config, model, args, kwargs, folder, name, target, dynamic)
            _mark_unchecked(folder, name, ranks.rank)
            _replace_paths(folder, target)
            put_in_place_together(ranks, work, place, overwrite=overwrite)


def _check_arguments(model: Any, name: Any, args: Any, kwargs: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"dynamo_export: model is {a_type(model)}; it must be a torch.nn.Module")
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(
            f"dynamo_export: export_name is {name!r}; it must be the name of a file; export_path gives its folder"
        )
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"dynamo_export: `{type(model).__name__}.forward`: {error}") from None


def _config(config: Any) -> tuple[Any, Any]:
    """Return torchair and a copy of the user's config."""
    torchair = torchair_module()
    copied = copy.deepcopy(config) if config is not None else torchair.CompilerConfig()
    if copied.mode.value != "max-autotune":
        raise ValueError(f"dynamo_export: config.mode is {copied.mode.value!r}; only 'max-autotune' can be exported")
    if copied.experimental_config.frozen_parameter:
        raise ValueError(
            "dynamo_export: config.experimental_config.frozen_parameter is True; an export freezes nothing"
        )
    return torchair, copied


def put_in_place_together(ranks: ExportRanks, work: Path, place: Path, *, overwrite: bool = False) -> None:
    """Put the files of all ranks that share a folder in place at once: the first rank does it, the others wait."""
    folders = ranks.in_one_folder(place, work)
    first_rank = min(folders, key=lambda rank: rank or 0)
    ranks.tell("grouped", None)
    if ranks.rank != first_rank:
        assert first_rank is not None
        ranks.ask("published", [first_rank])
        return
    # A rank that has not yet seen the work folders of the others would take itself for the only one once they are gone.
    ranks.ask("grouped", [rank for rank in folders if rank is not None and rank != first_rank])
    for rank, rank_folder in folders.items():
        if rank != first_rank:
            take_over(work / NEW, rank_folder / NEW)
    publish(work, place, overwrite=overwrite)
    ranks.tell("published", None)


def _air(name: str, rank: int | None) -> str:
    return f"{name}{rank if rank is not None else ''}.air"


def _check(target: Path, name: str, rank: int | None, args: Any, kwargs: Any) -> None:
    air = target / _air(name, rank)
    for path in (target, air):
        if path.is_symlink():
            raise ValueError(f"dynamo_export: `{path}` is a symbolic link; give the folder that it points to")
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
    """Run torchair's export into `folder`; torchair ends a successful export with an exception."""
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
            from gearcache.ge_cache.capture.cause import cause_of

            if isinstance(error, dynamo_errors()) and not hasattr(error, "inner_exception"):
                raise NotExportable(method, cause_of(error)) from error
            raise CompileError(method, "of the export", f"{type(error).__name__}: {error}") from error
        return
    finally:
        torch.compiler.reset()
    raise CompileError(f"{type(model).__name__}.forward", "of the export", f"no graph was exported to `{target}`")


def _mark_unchecked(folder: Path, name: str, rank: int | None) -> None:
    """Rename an export that no CANN has read, so that it cannot be mistaken for an accepted `.air`."""
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


def _replace_paths(folder: Path, target: Path) -> None:
    """Write the final place of the weight files, which the graph names by path, in both of its forms."""
    old_path, new_path = str(folder), str(target)
    for path in folder.rglob("*"):
        if path.name == "dynamo.pbtxt":
            path.write_text(path.read_text().replace(old_path, new_path))
        elif path.name.endswith((".air", UNCHECKED_SUFFIX)):
            _rename_files(path, old_path, new_path)


def _rename_files(path: Path, old_path: str, new_path: str) -> None:
    data = path.read_bytes()
    if old_path.encode() not in data:
        return
    model_type = sys.modules["torchair._ge_concrete_graph.ge_ir_pb2"].ModelDef
    model = model_type()
    model.ParseFromString(data)
    for graph in model.graph:
        for op in graph.op:
            for attribute in op.attr.values():
                if attribute.WhichOneof("value") == "s" and old_path.encode() in attribute.s:
                    attribute.s = attribute.s.replace(old_path.encode(), new_path.encode())
    path.write_bytes(model.SerializeToString())
