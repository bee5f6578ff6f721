"""Prewarming a Ray cluster: two nodes, each with a cache of its own, divide the work and end up with all of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gearcache
from gearcache.errors import OptionError
from tests.scenarios import prewarmed
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'gearcache[ray]'"
)


def prewarm(*arguments: Any, **options: Any) -> Any:
    """Call the function of the same name; Ray is imported by the tests that use it."""
    from gearcache.integrations.ray import prewarm as run

    return run(*arguments, **options)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """A cluster of two nodes; the folder of the cache of each."""
    import ray
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("ray")
    roots = [folder / "first", folder / "second"]
    paths = {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    cluster = Cluster()
    for root in roots:
        cluster.add_node(num_cpus=1, env_vars={**paths, "TORCHAIR_CACHE_HOME": str(root)})
    ray.init(address=cluster.address, log_to_driver=False)
    yield roots
    ray.shutdown()
    cluster.shutdown()


def entries(root: Path) -> list[str]:
    """The methods that a cache has entries of."""
    return sorted(path.parts[-3] for path in root.glob("v7/entries/*/*/manifest.msgpack"))


def on_node(node: str, function: Any) -> Any:
    """What a function returns in a fresh process of a node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    task = ray.remote(num_cpus=0, scheduling_strategy=where, max_calls=1)(function)
    return ray.get(task.remote(), timeout=120)


@pytest.mark.slow
@pytest.mark.thorough  # starts a cluster of Ray for a minute; `test_job` and `test_share` show the same by processes
def test_each_entry_is_compiled_once_and_every_node_serves(caches: list[Path]) -> None:
    for root in caches:  # tests run in any order
        shutil.rmtree(root, ignore_errors=True)
    told = prewarm("tests.scenarios.prewarmed:on_meta", nodes="all", threads=1, timeout=200)
    assert len({node.node for node in told}) == 2
    # `Decoder.decode` has three gears in two variants, `Decoder.score` one graph; nothing is compiled twice.
    assert sorted(node.compiled for node in told) == [1, 6]
    assert [entries(root) for root in caches] == [["Decoder.decode", "Decoder.score"]] * 2
    for node in told:
        assert node.report is not None
        assert (node.problem, node.report.compiled, node.report.is_complete) == ("", 0, True)
        served = on_node(node.node, prewarmed.serve)
        assert (served["equal"], served["traces"], served["misses"]) == (True, 0, [])
    (one,) = prewarm(prewarmed.on_meta, nodes=[told[0].node], threads=1)
    assert (one.node, one.compiled) == (told[0].node, 0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "Ray is not initialised"),
        ({"jobs": 0}, "jobs is 0"),
        ({"threads": None}, "threads is None; it must be an int"),
        ({"threads": True}, "threads is True"),
        ({"timeout": 0}, "timeout is 0"),
    ],
)
def test_wrong_arguments_are_told(arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(OptionError, match=message):
        prewarm(prewarmed.on_meta, **{"threads": 1, **arguments})


def test_the_threads_of_the_servers_are_asked_for_as_an_actor_has_one() -> None:
    with pytest.raises(TypeError, match="threads"):
        prewarm(prewarmed.on_meta)


def test_nodes_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.nodes", lambda: [{"NodeID": "ab", "Alive": True}, {"NodeID": "cd", "Alive": False}])
    with pytest.raises(OptionError, match="nodes is 'some'; it must be 'all', or ids of nodes"):
        prewarm(prewarmed.on_meta, nodes="some", threads=1)
    with pytest.raises(OptionError, match=r"nodes has 'cd'; alive are ab$"):
        prewarm(prewarmed.on_meta, nodes=["cd"], threads=1)


def test_what_no_server_imports_is_refused() -> None:
    with pytest.raises(OptionError, match="it must be a function, or `module:function`"):
        prewarm("deploy", threads=1)

    def here() -> None:
        gearcache.cache_compile(prewarmed.Decoder().decode)

    here.__module__ = "__main__"
    with pytest.raises(OptionError, match="a class of `__main__` is another one there"):
        prewarm(here, threads=1)
