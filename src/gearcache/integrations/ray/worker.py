"""Runs on each node: counts its work, compiles its share, and imports what other nodes have compiled."""

from __future__ import annotations

import importlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from msgspec import Struct

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.bundle import take_bundle, write_bundle
from gearcache.cache.layout import ROOT_VARIABLE, Layout, resolve_root
from gearcache.cache.remote.trust import Trust
from gearcache.errors import CacheError, OptionError
from gearcache.prewarming.prewarm import run_prewarm
from gearcache.prewarming.report import PrewarmReport
from gearcache.readable.joined import joined


class Work(Struct, frozen=True):
    """The work of a prewarm; `target` is a function, or the `module:function` of one."""

    target: Callable[[], object] | str
    cache_dir: str | None
    jobs: int | None
    threads: int
    world_size: int | None
    device: str


class NodeOutcome(Struct):
    """The result of a step on a node: a report, or the problem; names and bytes of the entries that it compiled."""

    report: PrewarmReport | None = None
    problem: str = ""
    names: tuple[str, ...] = ()
    bundle: bytes = b""


class NodeWorker:
    """One process on a node; its steps run one after the other."""

    def __init__(self, work: Work) -> None:
        self._work = work
        torch.set_num_threads(work.threads)

    def count(self) -> dict[str, int]:
        """Return the number of gears of each entry that the function calls here; raises what the function raises."""
        report, error = self._run(dry_run=True, left_to=None)
        if error is not None:
            raise error
        return {
            name: len({*entry.present, *entry.missing}) or 1
            for entry, name in zip(report.entries, self._names(report), strict=True)
            if name
        }

    def compile(self, left_to: Mapping[str, str]) -> NodeOutcome:
        """Compile the entries not left to other nodes (`left_to`: entry name -> node); return them as a bundle."""
        return self._catch_errors(lambda: self._compile_share(left_to))

    def take(self, bundles: Iterable[bytes]) -> NodeOutcome:
        """Import what other nodes have compiled, and compile what is still missing."""
        return self._catch_errors(lambda: self._import_shares(bundles))

    def _compile_share(self, left_to: Mapping[str, str]) -> NodeOutcome:
        report, error = self._run(dry_run=False, left_to=left_to)
        outcome = _outcome(report, error)
        outcome.names = tuple(
            name for entry, name in zip(report.entries, self._names(report), strict=True) if name and not entry.left_to
        )
        rows = [row for row in Catalog(self._layout).entries() if _name(*row.identity) in outcome.names]
        if rows:
            with tempfile.TemporaryDirectory() as folder:
                write_bundle(self._layout, rows, Path(folder, "share"))
                outcome.bundle = Path(folder, "share").read_bytes()
        return outcome

    def _import_shares(self, bundles: Iterable[bytes]) -> NodeOutcome:
        problems = []
        with tempfile.TemporaryDirectory() as folder:
            for data in bundles:
                path = Path(folder, "share")
                path.write_bytes(data)
                path.chmod(0o600)
                try:
                    take_bundle(self._layout, path, joined, trust=Trust.from_environment(os.environ))
                except CacheError as error:  # for example an unsigned share where signatures are required
                    problems.append(str(error))
        outcome = _outcome(*self._run(dry_run=False, left_to=None))
        if problems and outcome.report is not None and outcome.report.compiled:
            outcome.problem = "; ".join(filter(None, (outcome.problem, *problems)))
        return outcome

    def _catch_errors(self, step: Callable[[], NodeOutcome]) -> NodeOutcome:
        try:
            return step()
        except Exception as error:  # not every exception can be sent to another process
            return NodeOutcome(problem="".join(traceback.format_exception_only(error)).strip())

    def _run(self, *, dry_run: bool, left_to: Mapping[str, str] | None) -> tuple[PrewarmReport, BaseException | None]:
        return run_prewarm(
            _function(self._work.target),
            cache_dir=self._layout.root,
            jobs=self._work.jobs,
            ranks=(),
            world_size=self._work.world_size,
            device=self._work.device,
            dry_run=dry_run,
            left_to=None if left_to is None else lambda name: left_to.get(name, ""),
        )

    @property
    def _layout(self) -> Layout:
        if self._work.cache_dir is None and not os.environ.get(ROOT_VARIABLE):
            raise OptionError(
                f"prewarm: cache_dir is None, and ${ROOT_VARIABLE} is not set on this node; the folder in which Ray "
                "runs its workers is not a place for a cache"
            )
        return Layout(resolve_root(self._work.cache_dir, os.environ))

    def _names(self, report: PrewarmReport) -> list[str]:
        """Return the name of the entry of each row; empty for a call without one."""
        return [_name(*self._layout.identify(Path(row.entry))) if row.entry else "" for row in report.entries]


def _name(label: str, digest: str, ranks: str) -> str:
    return f"{label}-{digest}{f'/{ranks}' if ranks else ''}"


def _outcome(report: PrewarmReport, error: BaseException | None) -> NodeOutcome:
    problems = [
        f"{entry.method}, {gear}: {cause}"
        for entry in report.entries
        for gear, cause in zip(entry.named(entry.failed), entry.failed.values(), strict=True)
    ]
    if error is not None:
        problems.append(f"{type(error).__name__}: {error}")
    elif not report.entries:
        problems.append("the function called no cached method")
    return NodeOutcome(report, "; ".join(problems))


def _function(target: Callable[[], object] | str) -> Callable[[], object]:
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    function: Callable[[], object] = getattr(importlib.import_module(module), name)
    return function
