"""`prewarm` on the nodes of a Ray cluster: they divide the work, and exchange the results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from msgspec import Struct, field
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gearcache.errors import OptionError, PrewarmFailed
from gearcache.integrations.ray.worker import NodeOutcome, NodeWorker, Work
from gearcache.prewarming.report import PrewarmReport
from gearcache.prewarming.share import divide_among

#: Seconds that a whole prewarm may take.
USUAL_TIMEOUT = 3600.0


class NodePrewarmed(Struct):
    """The result of one node. `problem` is empty if it stores everything; `compiled` gears were compiled by it."""

    node: str
    address: str
    report: PrewarmReport | None = None
    compiled: int = 0
    problem: str = ""


class _Node(Struct):
    told: NodePrewarmed
    worker: Any
    work: Mapping[str, int] = field(default_factory=dict)
    share: NodeOutcome = field(default_factory=NodeOutcome)


def prewarm(
    build: Callable[[], object] | str,
    /,
    *,
    nodes: str | Sequence[str] = "all",
    cache_dir: str | None = None,
    threads: int,
    jobs: int | None = None,
    world_size: int | None = None,
    device: str = "cpu",
    timeout: float = USUAL_TIMEOUT,
) -> list[NodePrewarmed]:
    """Compile and store on each node what `build` calls, as `gearcache.prewarm` does; each entry is compiled once.

    - `build`: a function of a module that the nodes can import, or its name, `"deploy:build"`.
    - `nodes`: `"all"` living nodes, or their ids (`NodeID` of `ray.nodes()`).
    - `cache_dir`: the folder of the cache, the same path on all nodes; else `$TORCHAIR_CACHE_HOME` of each node.
    - `threads`: thread count of the serving processes, which is part of the key. Ray gives each as many as it has CPUs.
    - `jobs`: compile processes per node.
    - `world_size`: act as each rank of a job of this size.
    - `device`: where tensors on `meta` will be.
    - `timeout`: seconds for the whole prewarm.

    Nodes with the same keys divide them; others, for example with other CPUs, compile their own. Results go to the
    other nodes through Ray. Needs `ray.init(...)`. `PrewarmFailed` names each incomplete node and the reason; its
    `nodes` has the results of all nodes. `OptionError` for wrong arguments.
    """
    work = _make_work(build, cache_dir, jobs, threads, world_size, device)
    limit = time.monotonic() + _positive("timeout", timeout)
    actor = ray.remote(NodeWorker)
    workers: list[_Node] = []
    try:
        for node in _selected_nodes(nodes):
            # No CPUs are requested, so that a node that is already serving is prewarmed too.
            strategy = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            worker = actor.options(num_cpus=0, scheduling_strategy=strategy).remote(work)
            workers.append(_Node(NodePrewarmed(node["NodeID"], node["NodeManagerAddress"]), worker))
        for index, answer in _answers_of(workers, [node.worker.count.remote() for node in workers], limit):
            workers[index].work = answer
        owners = divide_among({index: node.work for index, node in enumerate(workers) if not node.told.problem})
        for index, answer in _answers_of(
            workers, [_compile_share(workers, index, owners) for index in range(len(workers))], limit
        ):
            _record(workers[index], answer)
            workers[index].share = answer
        for index, answer in _answers_of(workers, [_exchange(workers, index) for index in range(len(workers))], limit):
            _record(workers[index], answer)
    finally:
        for result in workers:
            with contextlib.suppress(Exception):
                ray.kill(result.worker)
    results = [node.told for node in workers]
    if failures := {f"{result.address} ({result.node[:8]})": result.problem for result in results if result.problem}:
        raise PrewarmFailed(failures, results)
    return results


def _compile_share(workers: list[_Node], index: int, owners: Mapping[str, int]) -> Any:
    node = workers[index]
    left_to = {name: f"node {workers[owner].told.node[:8]}" for name, owner in owners.items() if owner != index}
    return None if node.told.problem else node.worker.compile.remote(left_to)


def _exchange(workers: list[_Node], index: int) -> Any:
    """Have a node import the shares of other nodes that contain its entries."""
    node = workers[index]
    if node.told.problem:
        return None
    shares = [other.share for at, other in enumerate(workers) if at != index and other.share.bundle]
    return node.worker.take.remote([share.bundle for share in shares if set(share.names) & node.work.keys()])


def _record(node: _Node, outcome: NodeOutcome) -> None:
    node.told.report = outcome.report
    node.told.problem = outcome.problem
    node.told.compiled += outcome.report.compiled if outcome.report is not None else 0


def _answers_of(workers: list[_Node], references: list[Any], limit: float) -> list[tuple[int, Any]]:
    """Return the answers of the nodes, by index; the problem of a node that did not answer is recorded."""
    answers = []
    for index, reference in enumerate(references):
        if reference is None:
            continue
        result = workers[index].told
        try:
            answers.append((index, ray.get(reference, timeout=max(limit - time.monotonic(), 0.001))))
        except ray.exceptions.GetTimeoutError:
            result.problem = "it was not ready in time"
        except Exception as error:  # raised by the function, by the node, or by sending the work to it
            cause = getattr(error, "cause", None) or error
            result.problem = f"{type(cause).__name__}: {cause}"
    return answers


def _selected_nodes(nodes: str | Sequence[str]) -> list[dict[str, Any]]:
    if not ray.is_initialized():
        raise OptionError("prewarm: Ray is not initialised: call `ray.init(address=...)` first")
    alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    if nodes == "all":
        return list(alive.values())
    if isinstance(nodes, str) or not nodes:
        raise OptionError(f"prewarm: nodes is {nodes!r}; it must be 'all', or ids of nodes")
    if missing := [name for name in nodes if name not in alive]:
        raise OptionError(f"prewarm: nodes has {missing[0]!r}; alive are {', '.join(sorted(alive))}")
    return [alive[name] for name in dict.fromkeys(nodes)]


def _make_work(
    build: Callable[[], object] | str,
    cache_dir: str | None,
    jobs: int | None,
    threads: int,
    world_size: int | None,
    device: str,
) -> Work:
    if isinstance(build, str):
        module, colon, name = build.partition(":")
        if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            raise OptionError(f"prewarm: build is {build!r}; it must be a function, or `module:function`")
    elif not callable(build) or getattr(build, "__module__", None) in (None, "__main__"):
        raise OptionError(
            f"prewarm: build is {build!r}; it must be a function of a module that the server imports too: a class of "
            "`__main__` is another one there"
        )
    for name, value in (("jobs", jobs), ("threads", threads), ("world_size", world_size)):
        is_left_out = value is None and name != "threads"
        if not is_left_out and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise OptionError(f"prewarm: {name} is {value!r}; it must be an int of at least 1")
    return Work(build, cache_dir, jobs, threads, world_size, device)


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise OptionError(f"prewarm: {name} is {value!r}; it must be a number of seconds above 0")
    return float(value)
