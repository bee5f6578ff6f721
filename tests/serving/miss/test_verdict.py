"""What becomes of a call that no graph serves: a table of calls, rules and what is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gearcache.errors import InputError, RecompileRefused, UnknownGear
from gearcache.guards.dispatch.inputs import Problem
from gearcache.guards.dispatch.problems import Problems
from gearcache.guards.gears.parse import gear_text, parse_gears
from gearcache.guards.gears.symbol import Symbol
from gearcache.serving.call.call import Call
from gearcache.serving.miss.verdict import Compile, Eager, Known, MissRules, Pad, Refuse, decide

GEARS = {"x": {0: [2, 4]}}
TWO, FOUR = (gear_text(parse_gears(GEARS), (size,)) for size in (2, 4))
SHAPE = Problem("x", "of 4 rows", "2 rows", "shape", dims=(0,))
ASSUMED = Problem("x", "of 5 columns", "3 columns", "shape", is_assumption=True, dims=(1,))


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def call(rows: int, *, stance: str = "default", grad: bool = False) -> Call:
    net = Net()
    return Call(net.forward, {"self": net, "x": torch.zeros(rows, 3, requires_grad=grad)}, stance)  # type: ignore[arg-type]


def verdict(given: Call, *problems: tuple[str, Problem], gears: Any = None, on_miss: str, **known: Any) -> Any:
    return decide(given, Problems(problems), MissRules("Net.forward", parse_gears(gears), on_miss), Known(**known))


def gears_of(found: Compile | Pad) -> tuple[tuple[int, ...], ...]:
    return found.spec.gears


@pytest.mark.parametrize("on_miss, kind", [("raise", Refuse), ("compile", Compile), ("eager", Eager), ("pad", Pad)])
def test_a_size_outside_all_gears_is_what_on_miss_says(on_miss: str, kind: type) -> None:
    found = verdict(call(3), (TWO, SHAPE), gears=GEARS, on_miss=on_miss, missing=((4,),))
    assert type(found) is kind
    if isinstance(found, Refuse):
        assert isinstance(found.error, UnknownGear)
        assert "outside all gears" in str(found.error)
    if isinstance(found, Compile):
        assert gears_of(found) == ((3,),)
    if isinstance(found, Pad):  # what is to be compiled where no loaded gear can be padded to
        assert gears_of(found) == ((2,), (4,))


def test_a_size_outside_a_declared_range_is_refused_where_misses_are_padded() -> None:
    """The other words for a miss: tests/guards/gears/test_symbols.py."""
    symbol = {"x": {0: Symbol("tokens", min=2, max=8)}}
    assert isinstance(verdict(call(9), ("dynamic", SHAPE), gears=symbol, on_miss="pad"), Refuse)


@pytest.mark.parametrize("kind", ["dtype", "device", "stride"])
@pytest.mark.parametrize("on_miss", ["raise", "compile", "eager", "pad"])
@pytest.mark.parametrize("is_compared", [True, False])
def test_a_wrong_tensor_is_refused_unless_another_graph_can_be_told_from_the_loaded_one(
    kind: str, on_miss: str, is_compared: bool
) -> None:
    problem = Problem("x", "of float64", "float32", kind)
    rules = MissRules("Net.forward", parse_gears(GEARS), on_miss, is_compared=is_compared)
    found = decide(call(2), Problems([(TWO, problem)]), rules, Known(loaded=(TWO,), missing=((2,), (4,))))
    if is_compared and on_miss == "eager" and kind in ("dtype", "stride"):
        assert found == Eager("on_miss")
    elif is_compared and kind == "stride":
        assert isinstance(found, Compile)
        assert gears_of(found) == ((2,),), "the other gears are not wanted for strides that one call has"
    elif is_compared and on_miss == "compile" and kind == "dtype":
        assert isinstance(found, Compile)
        assert gears_of(found) == ((2,), (4,))
    else:
        assert isinstance(found, Refuse)
        assert type(found.error) is InputError
        assert found.error.value == "of float64"


@pytest.mark.parametrize("rows, gears", [(4, ((4,),)), (5, ((5,),))])
def test_another_dtype_at_sizes_that_no_graph_is_loaded_for_is_compiled_alone_where_only_sizes_are_compared(
    rows: int, gears: Any
) -> None:
    rules = MissRules("Net.forward", parse_gears(GEARS), "compile", is_compared=False)
    known = Known(loaded=(TWO,), missing=((2,), (4,)))
    found = decide(call(rows), Problems([(TWO, Problem("x", "of float64", "float32", "dtype"))]), rules, known)
    assert isinstance(found, Compile)
    assert gears_of(found) == gears


def test_a_loaded_gear_that_assumes_more_than_the_spec_is_compiled_alone() -> None:
    given = {"gears": GEARS, "on_miss": "raise", "missing": ((4,),), "loaded": (TWO,)}
    found = verdict(call(2), (TWO, ASSUMED), **given)
    assert isinstance(found, Compile)
    assert gears_of(found) == ((2,),)


def test_stances_that_forbid_a_compile() -> None:
    assert verdict(call(2, stance="eager_on_recompile"), on_miss="compile") == Eager("stance")
    found = verdict(call(2, stance="fail_on_recompile"), on_miss="compile", why="absent")
    assert isinstance(found, Refuse)
    assert isinstance(found.error, RecompileRefused)
    assert "absent" in str(found.error)


def test_a_wrong_tensor_is_told_before_the_stance() -> None:
    problem = Problem("x", "on cuda", "cpu", "device")
    found = verdict(call(2, stance="fail_on_recompile"), ("static", problem), on_miss="compile")
    assert isinstance(found, Refuse)
    assert isinstance(found.error, InputError)


def test_the_problem_of_the_calls_own_gear_counts() -> None:
    own = Problem("x", "own", "a", "device")
    found = verdict(call(4), (TWO, SHAPE), (FOUR, own), gears=GEARS, on_miss="compile", loaded=(TWO, FOUR))
    assert isinstance(found, Refuse)
    assert "own" in str(found.error)
