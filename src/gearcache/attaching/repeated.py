"""Finds the equal blocks of a model, and handles their attachments as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gearcache.attaching.attachment import Attachment
from gearcache.cache.keys.fingerprint import module_component
from gearcache.cache.keys.module_tree import named_children, named_modules
from gearcache.errors import UnsupportedMethod
from gearcache.guards.evidence.names import a_type
from gearcache.serving.call.parameters import Parameters
from gearcache.telemetry.stats import Stats

_LISTS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
Blocks = dict[str, torch.nn.Module]


class RepeatedAttachment:
    """The attachments of the blocks of a model, in the order of the blocks in the model.

    Each block is attached by itself and has its own weights. Blocks of the same structure have the same key: the first
    block compiles, the others load its graphs. Each shared object is in memory once.
    """

    def __init__(self, module: torch.nn.Module, blocks: Blocks, parameters: Parameters) -> None:
        #: The model that contains the blocks.
        self.module = module
        #: One attachment per block, by its path in the model.
        self.blocks: dict[str, Attachment] = {}
        try:
            for path, block in blocks.items():
                attachment = Attachment(block, parameters)
                attachment.attach()
                self.blocks[path] = attachment
        except BaseException:
            self.detach()
            raise

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Attachment]:
        return iter(self.blocks.values())

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(block.name for block in self))
        state = "attached" if self.is_attached else "detached"
        entries, loads = len(self.entry_paths), self.stats.loads
        return (
            f"<{state} {len(self)} blocks of {type(self.module).__name__}, {names}, {entries} "
            f"{'entry' if entries == 1 else 'entries'}, {loads} {'graph' if loads == 1 else 'graphs'} bound>"
        )

    @property
    def is_attached(self) -> bool:
        """Whether calls of all blocks are served."""
        return all(block.is_attached for block in self)

    @property
    def stats(self) -> Stats:
        """The combined counters of all blocks; a shared object counts as loaded for each block that it is bound to."""
        return Stats.together([block.stats for block in self])

    @property
    def entry_paths(self) -> tuple[str, ...]:
        """Paths of the manifests, each once: a single one if all blocks have the same structure and were called."""
        paths = (block.entry_path for block in self)
        return tuple(dict.fromkeys(path for path in paths if path is not None))

    def explain(self) -> str:
        """Return a text about the lookups so far, block by block."""
        return "\n".join(f"[{path}] {block.explain()}" for path, block in self.blocks.items())

    def warm(self, /, *args: Any, **kwargs: Any) -> None:
        """Compile and load every gear for all blocks, from one example call of a block; nothing is run."""
        for block in self:
            block.warm(*args, **dict(kwargs))

    def set_inputs(self, /, *inputs: Any, **named: Any) -> None:
        """Declare the arguments of the blocks, as `CachedMethod.set_inputs` does."""
        for block in self:
            block.set_inputs(*inputs, **named)

    def refresh(self) -> None:
        """Check the evidence of all blocks and bind their weights again at their next calls."""
        for block in self:
            block.refresh()

    def detach(self) -> None:
        """Restore what calls of the blocks ran before."""
        for block in self:
            block.detach()


def find_blocks(module: torch.nn.Module, repeated: Any) -> Blocks:
    """Return the blocks of a model by their paths, each module once.

    `repeated` is the path of a list of modules, several paths, or True: all lists that have equal blocks.

    `UnsupportedMethod` for anything that is not a module, `ValueError` if there are no blocks.
    """
    if not isinstance(module, torch.nn.Module):
        raise UnsupportedMethod(f"attach takes a torch.nn.Module, not {a_type(module)}")
    blocks_by_path: Blocks = {}
    if repeated is True:
        blocks_by_path = _equal_blocks(module)
    else:
        for path in _paths(repeated):
            blocks_by_path |= _blocks_at(module, path)
    once = {id(block): (path, block) for path, block in reversed(blocks_by_path.items())}
    blocks = dict(reversed(once.values()))
    if not blocks:
        raise ValueError(
            f"attach: repeated=True finds no list of equal blocks in `{type(module).__name__}`; attach the module "
            f"itself, or name a list of modules{_advice(module)}"
        )
    return blocks


def _paths(repeated: Any) -> Sequence[str]:
    paths = [repeated] if isinstance(repeated, str) else repeated
    if not isinstance(paths, (list, tuple)) or not paths or not all(isinstance(path, str) for path in paths):
        raise TypeError(
            f"attach: repeated is {repeated!r}; it must be the path of a list of modules (`'layers'`), several of "
            "them, or True"
        )
    return paths


def _blocks_at(module: torch.nn.Module, path: str) -> Blocks:
    try:
        modules: Any = module.get_submodule(path)
    except AttributeError:
        modules = None
    children = _children(modules) if isinstance(modules, _LISTS) else {}
    if not children:
        kind = "nothing" if modules is None else a_type(modules) if not isinstance(modules, _LISTS) else "an empty list"
        raise ValueError(
            f"attach: repeated names `{path}`, which is {kind} in `{type(module).__name__}`; it must be a ModuleList, "
            f"Sequential or ModuleDict{_advice(module)}"
        )
    return {f"{path}.{name}": child for name, child in children.items()}


def _equal_blocks(module: torch.nn.Module) -> Blocks:
    """Return the outermost blocks: modules of one class in one list, if at least two have equal structure.

    If a diffusers model names block classes (`_repeated_blocks`), modules of these classes are its blocks.
    """
    class_names = getattr(module, "_repeated_blocks", None)
    if isinstance(class_names, (list, tuple)) and class_names:
        return {path: child for path, child in named_modules(module) if path and type(child).__name__ in class_names}
    blocks: Blocks = {}
    _collect(module, "", blocks)
    return blocks


def _collect(module: torch.nn.Module, path: str, blocks: Blocks) -> None:
    children = _children(module)
    block_names: set[str] = set()
    if isinstance(module, _LISTS):
        for kind in dict.fromkeys(type(child) for child in children.values()):
            alike = {name: child for name, child in children.items() if type(child) is kind}
            if _are_blocks(list(alike.values())):
                block_names |= alike.keys()
    for name, child in children.items():
        place = f"{path}.{name}" if path else name
        if name in block_names:
            blocks[place] = child
        else:
            _collect(child, place, blocks)


def _are_blocks(modules: list[torch.nn.Module]) -> bool:
    """Whether modules of one class deserve their own entry: they contain modules, and two have equal structure."""
    if len({id(module) for module in modules}) < 2 or isinstance(
        modules[0], (torch.nn.ModuleList, torch.nn.ModuleDict)
    ):
        return False
    if not _children(modules[0]):
        return False
    structures = [repr(module_component(module)) for module in modules]
    return len(set(structures)) < len(structures)


def _children(module: Any) -> Blocks:
    return dict(named_children(module))


def _advice(module: torch.nn.Module) -> str:
    lists = [
        path for path, child in named_modules(module) if path and isinstance(child, _LISTS) and len(_children(child))
    ]
    return f"; those of this model are {', '.join(f'`{path}`' for path in lists[:8])}" if lists else ""
