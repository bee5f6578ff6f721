"""One capture: inputs by path, attributes, what is written, which checks, and what is refused."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.capture import capture_method
from gearcache.ge_cache.capture.captured import Capture
from gearcache.guards.access import Access
from gearcache.guards.evidence.code import is_versioned

OFFSET = 2.0
TABLE = {"a": 3.0, "b": 5.0}


def helper(x: Tensor) -> Tensor:
    return x + OFFSET


@torch.compiler.assume_constant_result
def assumed() -> float:
    return OFFSET


@torch.compiler.assume_constant_result
def assumed_of(value: float) -> float:
    return value


@torch.compiler.assume_constant_result
def assumed_by_name(name: str) -> float:
    return TABLE[name]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.held = [torch.ones(4)]
        self.calls = 0

    def run(self, x: Tensor, caches: dict[str, Tensor], scale: float) -> Tensor:
        caches["keys"].add_(1)
        self.calls = self.calls + 1
        return helper(self.linear(x)) * scale + caches["keys"].sum() + self.held[0]

    def branched(self, x: Tensor) -> Tensor:
        return x * 2 if os.environ.get("GEARCACHE_TEST_BRANCH") else x * 3

    def checked(self, x: Tensor) -> Tensor:
        return x + 1 if torch.cuda.is_available() else x

    def assuming(self, x: Tensor) -> Tensor:
        return x * assumed()

    def assuming_of(self, x: Tensor) -> Tensor:
        return x * assumed_of(2.0)

    def assuming_by_name(self, x: Tensor) -> Tensor:
        return x * assumed_by_name("a") + assumed_by_name("b")

    def on_a_stream(self, x: Tensor) -> Tensor:
        with torch.Stream(device="cpu"):
            return x + 1

    def scaled_by(self, x: Tensor, scale: int) -> Tensor:
        return x * scale


def _capture(net: Net, name: str = "run", *arguments: Any, dynamic: bool = True) -> Capture:
    return capture_method(getattr(net, name), arguments, {}, method=f"Net.{name}", dynamic=dynamic)


def _run(dynamic: bool = True) -> Capture:
    return _capture(Net(), "run", torch.randn(3, 4), {"keys": torch.zeros(5, 4)}, 1.5, dynamic=dynamic)


def _expected(capture: Capture, kind: str) -> dict[str, Any]:
    return {check.access.text: check.expected for check in capture.checks if check.kind == kind}


def test_inputs_are_tensors_by_path_and_parameters_are_attributes() -> None:
    net = Net()
    capture = _capture(net, "run", torch.randn(3, 4), {"keys": torch.zeros(5, 4)}, 1.5)
    assert {item.access.text for item in capture.inputs} == {"x", "caches['keys']", "self.held[0]"}
    assert {id(tensor) for tensor in capture.attribute_tensors.values()} == set(map(id, net.parameters()))
    assert set(capture.attributes) == set(capture.attribute_tensors)


def test_sizes_are_symbols_where_dims_are_dynamic() -> None:
    x = next(item for item in _run().inputs if item.access.text == "x")
    assert getattr(x.sizes[0], "is_Symbol", False)
    x = next(item for item in _run(dynamic=False).inputs if item.access.text == "x")
    assert x.sizes == (3, 4)
    assert x.strides == (4, 1)


def test_what_the_frame_writes_is_told() -> None:
    capture = _run()
    affected = [check for check in capture.checks if capture.written.affects(check)]
    assert {check.access.text for check in affected if check.kind != "lacks"} == {"self.calls"}
    assert {check.expected for check in affected if check.kind == "lacks"} <= {"calls"}


def test_checks_name_arguments_attributes_globals_and_functions() -> None:
    capture = _run()
    constants = _expected(capture, "constant")
    assert constants["scale"] == ["float", (1.5).hex()]
    assert constants["OFFSET"] == ["float", (2.0).hex()]
    assert constants["self.calls"] == 0
    functions = _expected(capture, "function")
    assert functions["helper"][0].endswith(":helper")
    place = f"torch/nn/modules/linear.py:{nn.Linear.forward.__code__.co_firstlineno}"
    assert ["torch.nn.modules.linear:Linear.forward", place] in functions.values()
    assert all(is_versioned(code) for code in capture.traced_code), "a function that no check compares"


def test_an_environment_variable_that_was_read_is_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Access(("environment", "GEARCACHE_TEST_BRANCH"))
    for value in (None, "1"):
        if value is not None:
            monkeypatch.setenv("GEARCACHE_TEST_BRANCH", value)
        capture = _capture(Net(), "branched", torch.ones(2, 4))
        assert _expected(capture, "constant")[path.text] == value


def test_a_call_that_is_folded_is_a_check_of_its_result() -> None:
    capture = _capture(Net(), "checked", torch.ones(2, 4))
    assert _expected(capture, "constant")["torch.cuda.is_available()"] == ["bool", torch.cuda.is_available()]


def test_a_result_assumed_constant_is_checked_again_or_refused() -> None:
    capture = _capture(Net(), "assuming", torch.ones(2, 4))
    (text,) = [text for text in _expected(capture, "constant") if text.endswith("assumed()")]
    assert _expected(capture, "constant")[text] == ["float", (2.0).hex()]
    constants = _expected(_capture(Net(), "assuming_by_name", torch.ones(2, 4)), "constant")
    asked = {text: value for text, value in constants.items() if "assumed_by_name" in text}
    assert [value for _, value in sorted(asked.items())] == [["float", (3.0).hex()], ["float", (5.0).hex()]]
    with pytest.raises(CaptureError, match=r"`Net\.assuming_of`.*assumed_of`, whose result is assumed constant"):
        _capture(Net(), "assuming_of", torch.ones(2, 4))


def test_every_capture_checks_what_lies_around_the_call_of_a_module() -> None:
    lengths = _expected(_run(), "length")
    assert lengths["torch.nn.modules.module._global_forward_hooks"] == 0
    assert "torch.nn.modules.module.Module.__call__" in _expected(_run(), "function")


def test_what_the_graph_itself_forbids_is_said_once_and_names_the_method() -> None:
    with pytest.raises(CaptureError) as caught:
        _capture(Net(), "on_a_stream", torch.ones(3))
    assert str(caught.value) == (
        "`Net.on_a_stream` cannot be cached: it works with streams or events, which a static graph cannot honour"
    )


def test_an_int_that_torch_was_told_to_keep_dynamic_is_a_number() -> None:
    with torch.compiler.config.patch(dynamic_sources="L['scale']"):
        capture = _capture(Net(), "scaled_by", torch.ones(3), 3)
    assert [access.text for access in capture.number_accesses.values()] == ["scale"]
    assert _expected(capture, "numbers") == {"scale": [[], [["n0", [["argument", "scale"], []]]]]}


def test_dynamo_is_left_as_it_was() -> None:
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator
    from torch._dynamo.variables import functions
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    def present() -> list[Any]:
        return [
            InliningInstructionTranslator.build_inline_tracer,
            TorchInGraphFunctionVariable.call_function,
            functions.invoke_and_store_as_constant,
        ]

    before = present()
    _run()
    with pytest.raises(CaptureError):
        _capture(Net(), "assuming_of", torch.ones(2, 4))
    assert present() == before
