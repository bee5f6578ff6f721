"""Keep the static kernels of an aclgraph beside the entry: CANN's `op_compiler` takes minutes for them.

An aclgraph with static kernels first runs its operators once to note their sizes, compiles kernels for exactly these,
packs them into `.run` packages, installs those, and only then captures. The packages of one graph have a folder of
their own, whose name is a digest of everything that they depend on; it counts when it was sealed as a whole
(`compiled_graphs`). A relaunch installs them and compiles nothing. Leftovers of a killed process are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from gearcache.ge_cache.npu.compiled_graphs import LOCK_TIMEOUT, graph_folder, is_sealed

_UPDATE = "_update_static_kernel_cache_dir"


def has_static_kernels(namespace: Mapping[str, Any]) -> bool:
    """Return whether generated text uses static kernels."""
    return _UPDATE in namespace


def kernels_key(code: bytes, fingerprint: Mapping[str, Any], tensors: Sequence[Any], left_out: list[str]) -> str:
    """Return a name for the kernels of one graph; the text of a graph with dynamic dims does not contain the sizes."""
    digest = hashlib.sha256(repr([sorted(fingerprint.items()), tensors, left_out]).encode())
    digest.update(code)
    return f"gearcache-{digest.hexdigest()}"


class FirstCall:
    """Replaces an aclgraph until its first call, which makes or installs its static kernels."""

    def __init__(
        self, namespace: dict[str, Any], root: Path, key: Callable[[Sequence[Any]], str], written: list[int]
    ) -> None:
        """`written` are the positions of the arguments that the graph writes."""
        self._namespace = namespace
        self._graph = namespace["acl_graph"]
        self._root, self._key, self._written_positions = root, key, written
        namespace["acl_graph"] = self

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        with kernel_folder(self._root, self._key(arguments)) as folder:
            self._namespace[_UPDATE](str(folder))
            # To note its operators the graph runs them: one run too many for arguments that it writes.
            with unchanged([] if is_sealed(folder) else [arguments[index] for index in self._written_positions]):
                self._graph.compile(*arguments, **keywords)
        self._namespace["acl_graph"] = self._graph
        return self._graph(*arguments, **keywords)


@contextlib.contextmanager
def kernel_folder(root: Path, key: str) -> Iterator[Path]:
    """Yield a folder for static kernels: that of the key, or a temporary one where that must not be written."""
    if _compiles_for_others():
        # Ranks wait for each other while they compile: none of them may wait for the lock of another job.
        timeout = 0.0 if _world_size() > 1 else LOCK_TIMEOUT
        with graph_folder(root, key, timeout) as folder:
            # npugraph_ex accepts only packages of the current user, and only paths without links.
            if folder is not None and folder.stat().st_uid == os.getuid():
                was_sealed = is_sealed(folder)
                yield folder.resolve()
                if not was_sealed:
                    _keep_packages(folder)
                return
            with _temporary(folder) as copied:
                yield copied
            return
    with _temporary(None) as folder:
        yield folder


@contextlib.contextmanager
def _temporary(source: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gearcache-kernels-") as name:
        folder = Path(name).resolve() / "kernels"
        if source is not None:
            shutil.copytree(source, folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        yield folder


def _world_size() -> int:
    is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if is_distributed else 1


def _compiles_for_others() -> bool:
    """Return whether this process compiles: the first rank of a host compiles for all of them."""
    if _world_size() == 1:
        return True
    return torch.distributed.get_rank() % int(os.environ.get("LOCAL_WORLD_SIZE", "1")) == 0


def _keep_packages(folder: Path) -> None:
    """Keep only `.run` packages, which are all that a relaunch reads; remove everything where there is none."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                path.rmdir()  # only if empty
        elif path.suffix != ".run":
            path.unlink()


@contextlib.contextmanager
def unchanged(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Restore the values of tensors at the end; they are kept on the host where the device has no room."""
    try:
        copies = [tensor.detach().clone() for tensor in tensors]
    except torch.OutOfMemoryError:
        copies = [tensor.detach().cpu() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, copies, strict=True):
                tensor.copy_(value)
