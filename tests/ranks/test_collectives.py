"""Collectives in a cached method: what is stored of their groups, what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as collectives

import gearcache
from gearcache.errors import CaptureError
from gearcache.ge_cache.inductor.groups import place, with_names
from gearcache.ge_cache.inductor.interpreter_lock import with_lock_released
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource
from tests.support.scenarios import strict_config

NAMES = ("0", "a_name_" * 18 + "!")


class Reducer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = dist.group.WORLD if dist.is_initialized() else None

    def broadcast(self, x: Tensor) -> Tensor:
        found = x + 1
        dist.broadcast(found, src=0)
        return found

    def barrier(self, x: Tensor) -> Tensor:
        dist.barrier()
        return x + 1

    def reduced_number(self, x: Tensor) -> Tensor:
        count = torch.tensor(1.0)
        dist.all_reduce(count)
        return x * count.item()

    def asked_backend(self, x: Tensor) -> Tensor:
        return x + 1 if dist.get_backend() == "gloo" else x - 1

    def asked_type(self, x: Tensor) -> Tensor:
        return x + 1 if type(self.own) is dist.ProcessGroup else x - 1

    def asked_what_is_known(self, x: Tensor) -> Tensor:
        own = self.own
        is_one = isinstance(own, dist.ProcessGroup) and own is not None and hasattr(own, "rank")
        return x + own.size() * 4 + own.rank() if is_one else x

    def in_own_group(self, x: Tensor) -> Tensor:
        found = x + 1
        dist.all_reduce(found, group=self.own)
        return found * 2

    def named(self, x: Tensor) -> Tensor:
        return collectives.all_reduce(x + 1, "sum", "0")


@pytest.fixture
def job() -> Iterator[None]:
    """Be a job of one rank."""
    start()
    yield
    dist.destroy_process_group()


def start() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.mark.usefixtures("job")
@pytest.mark.filterwarnings("ignore:Dynamo does not know")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "broadcast",
            r"cannot trace `torch\.distributed\.broadcast`: use `torch.*collectives\.broadcast.*test_collect",
        ),
        ("barrier", r"cannot trace `torch\.distributed\.barrier`: call it outside of the method"),
        ("asked_backend", r"a process group .* in `__init__`, and keep the answer"),
        ("asked_type", r"type of a process group, .* in `__init__`, and keep the answer"),
    ],
)
def test_what_no_trace_can_take_is_refused_with_the_way_out(cache_dir: Path, name: str, text: str) -> None:
    cached = gearcache.cache_compile(getattr(Reducer(), name), config=strict_config())
    with pytest.raises(CaptureError, match=text):
        cached(torch.ones(2))


@pytest.mark.usefixtures("job")
def test_a_group_may_be_asked_for_ranks_and_size(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Reducer().asked_what_is_known, config=strict_config())
    assert torch.equal(cached(torch.ones(2)), torch.ones(2) + 4)


@pytest.mark.usefixtures("job")
def test_the_result_of_a_collective_is_no_constant_of_a_graph(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Reducer().reduced_number, config=strict_config(), gears={"x": {0: [2, 4]}})
    assert torch.equal(cached(torch.ones(2)), torch.ones(2))
    text = gearcache.readable_cache(cached.entry_path, print_output=False)
    assert "all_reduce" in text
    assert "item" in text


@pytest.mark.usefixtures("job")
def test_a_group_of_other_ranks_is_a_miss_with_its_reason(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a method knows a group by its name alone, nothing else of the evidence compares it."""
    assert [relaunch(), relaunch()] == [["absent: no entry for `Reducer.named`"], []]
    there = "gearcache.serving.find.evidence.private_core.process_group_ranks"
    monkeypatch.setattr(there, lambda name: [0, 1])  # a job of two would be two processes
    assert relaunch() == ["torch.distributed's process group '0' is of the ranks [0, 1], stored: of the ranks [0]"]
    monkeypatch.setattr(there, lambda name: None)
    with pytest.raises(CaptureError, match="the process group '0', and this process has no group of that name"):
        relaunch()


def relaunch() -> list[str]:
    """Serve a call as a new process would; return why it was compiled."""
    events: list[gearcache.Event] = []
    remove = gearcache.add_listener(events.append)
    assert torch.equal(
        gearcache.cache_compile(Reducer().named, config=strict_config())(torch.ones(2)), torch.ones(2) + 1
    )
    remove()
    return [event.detail for event in events if event.kind == "miss"]


@pytest.mark.usefixtures("job", "compiled_here")
def test_a_compiled_graph_communicates_in_the_group_of_its_module(cache_dir: Path) -> None:
    group = dist.new_group()
    for traces in (1, 0):
        model = Reducer()
        model.own = group
        cached = gearcache.cache_compile(model.in_own_group, config=strict_config("inductor"))
        assert torch.equal(cached(torch.ones(2)), torch.full((2,), 4.0))
        assert cached.stats.traces == traces


def test_names_are_written_into_places_and_end_there() -> None:
    library = b"\1" + place(0).encode() + b"\0\2" + place(1).encode() + b"\0\3" + place(0).encode() + b"\0"
    written = with_names(library, NAMES)
    assert len(written) == len(library)
    assert [text for text in written.split(b"\0") if text] == [
        f"{mark}{name}".encode() for mark, name in zip("\1\2\3", (*NAMES, NAMES[0]), strict=True)
    ]


def test_a_graph_that_communicates_is_not_compiled_where_it_would_keep_pythons_lock() -> None:
    plain = CppSource("int main() {}\n", "")
    assert with_lock_released(plain) == plain
    with pytest.raises(RuntimeError, match="Python's lock"):
        with_lock_released(CppSource("aoti_torch_cpu__c10d_functional_wait_tensor(buf0)", ""))
