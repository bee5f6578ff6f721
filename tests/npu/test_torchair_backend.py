"""The torchair backend on the emulated NPU: keys, options, GE's own cache, refusals."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchair
from torch import Tensor, nn

import gearcache
from gearcache.cache.remote.outbox import outbox
from gearcache.errors import (
    BackendUnavailable,
    CacheError,
    GearSpecError,
    InputError,
    OptionError,
    UnkeyableValue,
)
from gearcache.ge_cache.npu import ascend
from gearcache.ge_cache.npu.backend import TorchairBackend
from gearcache.ge_cache.npu.compiled_graphs import is_sealed
from gearcache.ge_cache.npu.config import NpuOptions
from gearcache.ge_cache.npu.options import NOT_IN_KEY, REFUSED, config_component, config_leaves
from gearcache.torch_state import state_component
from tests.npu import device, native
from tests.npu.forked_ranks import run_ranks
from tests.support.relaunch import ROOT


class Sum(nn.Module):
    def both(self, x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y.sum()


def cache(method: Any, root: Path, **options: Any) -> Any:
    parameters = {
        name: options.pop(name) for name in ("gears", "ge_cache", "input_signature", "remotes") if name in options
    }
    config = gearcache.CompilerConfig(strict=True, **options)
    return gearcache.cache_compile(method, config=config, cache_dir=root, **parameters)


def tensors(rows: int = 2) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 3).to("npu"), torch.randn(4).to("npu")


# -- options and keys ------------------------------------------------------------------------------------------


def other_value(config: Any, name: str, value: Any, folder: Path) -> Any:
    """Another allowed value of an option."""
    if name == "fusion_config.fusion_switch_file" or name.endswith(("aoe_config_file", "dump_config_path")):
        path = folder / "option.json"
        path.write_text("{}")
        return str(path)
    option = config
    for part in name.split("."):
        option = vars(option).get(part, vars(option).get(f"_{part}"))
    allowed = getattr(option, "optional", None)
    if isinstance(allowed, (list, tuple)):
        return next((item for item in allowed if item != value), "a value of a later torchair")
    kind = type(option).__name__
    if name.endswith(".path"):
        return str(folder)
    if kind == "CallableValue":
        return other_value
    if kind in ("MustExistedPathValue", "StrOptionValue"):
        return str(folder)
    if kind == "DictOptionValue":
        return {"a": 1}
    if kind == "IntListValue":
        return [1, 2]
    if kind in ("IntRangeValue", "OptionValue"):
        return 7 if value != 7 else 8
    if kind == "RegexValue":
        return "1"
    return "another"


def set_option(config: Any, name: str, value: Any) -> None:
    *folders, last = name.split(".")
    for part in folders:
        config = getattr(config, part)
    try:
        setattr(config, last, value)
    except ValueError:
        vars(vars(config).get(last) or vars(config)[f"_{last}"])["_value"] = value


NAMES = sorted(config_leaves(torchair.CompilerConfig()))


def test_every_option_is_in_the_key_or_on_a_list_with_its_reason(tmp_path: Path, subtests: pytest.Subtests) -> None:
    assert set(NOT_IN_KEY) | set(REFUSED) <= set(NAMES)
    plain = config_component(torchair.CompilerConfig())
    for name in NAMES:
        with subtests.test(name):
            config = torchair.CompilerConfig()
            set_option(config, name, other_value(config, name, config_leaves(config)[name], tmp_path))
            assert config_leaves(config)[name] != config_leaves(torchair.CompilerConfig())[name], "nothing is changed"
            if name in REFUSED:
                with pytest.raises(ValueError, match=re.escape(f"config.{name} is")):
                    config_component(config)
            else:
                assert (config_component(config) == plain) == (name in NOT_IN_KEY)


@pytest.mark.parametrize("name", ["mode", "inference_config.dynamic_gears_merge_policy"])
def test_an_option_that_our_config_has_itself_is_refused_among_those_of_torchair(name: str) -> None:
    with pytest.raises(OptionError, match=re.escape(f"option '{name}'")):
        NpuOptions(options={name: "npugraph_ex"}).torchair_config()


def test_an_option_file_counts_by_its_contents(tmp_path: Path) -> None:
    found = []
    for folder, text in (("a", "1"), ("b", "1"), ("a", "2")):
        path = tmp_path / folder / "switch.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        config = torchair.CompilerConfig()
        config.fusion_config.fusion_switch_file = str(path)
        found.append(config_component(config))
    assert found[0] == found[1] != found[2]


SETTINGS: Any = [1]


def _pass(graph: Any, inputs: Any, config: Any) -> None:
    helper(graph)
    graph.setting = SETTINGS


def helper(graph: Any) -> None:
    return None


def test_a_custom_pass_counts_by_its_code_and_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    config = torchair.CompilerConfig()
    config.post_grad_custom_pre_pass = _pass
    before = config_component(config)
    assert before == config_component(config)
    for name, value in (("helper", lambda graph: graph), ("SETTINGS", [2])):
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, value)
            assert config_component(config) != before
    monkeypatch.setitem(globals(), "SETTINGS", object())
    with pytest.raises(UnkeyableValue, match="post_grad_custom_pre_pass"):
        config_component(config)


NPU = sys.modules["torch_npu"].npu
CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "level": lambda patch: patch.setattr(NPU, "_deterministic_level", 1),
    "hf32": lambda patch: patch.setattr(NPU.matmul, "allow_hf32", True),
    "conv": lambda patch: patch.setattr(NPU.conv, "allow_hf32", False),
    "cube": lambda patch: patch.setattr(NPU.matmul, "cube_math_type", 2),
    "variable": lambda patch: patch.setenv("AUTOFUSE_FLAGS", "--enable_autofuse=true"),
    "cann": lambda patch: patch.setattr(NPU.utils, "get_cann_version", lambda module="CANN": "9.0.0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_ge_compiles_for_is_in_the_key(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = TorchairBackend().fingerprint()
    assert before == TorchairBackend().fingerprint()
    CHANGES[change](monkeypatch)
    assert TorchairBackend().fingerprint() != before


# -- GE's own cache --------------------------------------------------------------------------------------------


def main() -> None:
    """A process that is killed once GE has written its file."""
    cache(Sum().both, Path(sys.argv[1]), ge_cache=True)(*tensors())


def test_what_a_process_left_that_died_after_ges_write_is_never_loaded(tmp_path: Path) -> None:
    environ = {native.KILL_AFTER_WRITE: "1"}
    run_ranks("tests.npu.test_torchair_backend", [[str(tmp_path)]], tmp_path, exit_code=-signal.SIGKILL, **environ)
    (left,) = tmp_path.rglob("*.om")
    left.write_bytes(b"another graph")
    before = Counter(native.COUNTS)
    x, y = tensors()
    cached = cache(Sum().both, tmp_path, ge_cache=True)
    assert torch.allclose(cached(x, y).cpu(), Sum().both(x, y).cpu())
    assert native.COUNTS["cached"] == before["cached"]
    assert native.COUNTS["compile"] == before["compile"] + 1


def test_a_changed_file_of_ge_is_dropped_and_compiled_again(tmp_path: Path) -> None:
    x, y = tensors()
    cache(Sum().both, tmp_path, ge_cache=True)(x, y)
    (compiled,) = tmp_path.rglob("*.om")
    assert is_sealed(compiled.parent)
    compiled.write_bytes(compiled.read_bytes()[:-1])
    assert not is_sealed(compiled.parent)
    before = native.COUNTS["compile"]
    assert torch.allclose(cache(Sum().both, tmp_path, ge_cache=True)(x, y).cpu(), Sum().both(x, y).cpu())
    assert native.COUNTS["compile"] == before + 1


@pytest.mark.parametrize("ge_cache", [False, True])
def test_what_one_host_compiled_another_fetches_but_for_ges_own_files(tmp_path: Path, ge_cache: bool) -> None:
    hosts: list[Any] = []
    for name in ("a", "b"):
        options = {"gears": {"x": {0: [2, 4]}}, "ge_cache": ge_cache, "remotes": f"folder:{tmp_path}?unsigned=1"}
        hosts.append(cache(Sum().both, tmp_path / name, **options))
        for rows in (2, 4):
            x, y = tensors(rows)
            torch.testing.assert_close(hosts[-1](x, y).cpu(), Sum().both(x, y).cpu())
        assert outbox().flush(30) == 0
        assert bool(list((tmp_path / name).rglob("*.om"))) == ge_cache, "an output of GE"
    assert [host.stats.compiles for host in hosts] == [2, 0]
    assert hosts[1].stats.fetches == 2


# -- gears -----------------------------------------------------------------------------------------------------


class Pair(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, y @ y.transpose(0, 1)


def _ge_gears(options: dict[str, str]) -> tuple[list[str], list[tuple[str, ...]], str]:
    """Shapes and gears without the names of the inputs, which are numbered in another order."""
    shapes = sorted(item.partition(":")[2] for item in options["ge.inputShape"].split(";"))
    gears = [tuple(sorted(entry.split(","))) for entry in options["ge.dynamicDims"].split(";")]
    return shapes, gears, options["ge.dynamicNodeType"]


def test_the_options_of_ges_gears_are_torchairs_own_in_a_defined_order(tmp_path: Path) -> None:
    def geared() -> tuple[Tensor, Tensor]:
        x, y = torch.randn(2, 4).to("npu"), torch.randn(6, 3).to("npu")
        torchair.inference.set_dim_gears(x, {0: [2, 4]})
        torchair.inference.set_dim_gears(y, {1: [3, 5]})
        return x, y

    config = torchair.CompilerConfig()
    config.inference_config.dynamic_gears_merge_policy = "product"
    torch.compiler.reset()
    torch.compile(Pair(), dynamic=True, fullgraph=True, backend=torchair.get_npu_backend(compiler_config=config))(
        *geared()
    )
    theirs = _ge_gears(native.OPTIONS[-1])
    ours = gearcache.CompilerConfig(strict=True, gear_execution="ge")
    ours.inference_config.dynamic_gears_merge_policy = "product"
    gearcache.cache_compile(Pair().forward, config=ours, cache_dir=tmp_path)(*geared())
    found = _ge_gears(native.OPTIONS[-1])
    assert (found[0], sorted(found[1]), found[2]) == (theirs[0], sorted(theirs[1]), theirs[2])
    assert found[1] == [tuple(sorted(map(str, gear))) for gear in itertools.product([2, 4], [3, 5])]


def test_what_is_declared_is_compiled_for_the_npu_without_an_example(tmp_path: Path) -> None:
    batch = gearcache.Symbol("batch", gears=[2, 4])
    specs = (gearcache.TensorSpec((batch, 3), torch.float32, "npu"), torch.zeros(4, device="npu"))
    cached = cache(Sum().both, tmp_path, input_signature=specs, gear_execution="ge")
    cached.warm()
    for rows in (4, 2):
        x, y = tensors(rows)
        assert torch.allclose(cached(x, y).cpu(), (x * 2 + y.sum()).cpu())
    with pytest.raises(InputError, match="argument `x` is on device cpu; allowed: device npu"):
        cached(x.cpu(), y)
    assert cached.stats.traces == 1


def test_a_geared_tensor_of_private_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tensors()
    monkeypatch.setitem(device.FORMATS, x.data_ptr(), 29)
    with pytest.raises((GearSpecError, CacheError), match="private storage format 29"):
        cache(Sum().both, tmp_path, gears={"x": {0: [2, 4]}})(x, y)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, device="npu"))

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_weights_of_another_storage_format_get_another_graph_of_ge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, before = Scaled(), Counter(native.COUNTS)
    for kind in (2, 29, 29):
        monkeypatch.setitem(device.FORMATS, model.weight.data_ptr(), kind)
        cache(model.scaled, tmp_path, ge_cache=True).warm(tensors()[0])
    assert native.COUNTS["compile"] - before["compile"] == 2
    assert native.COUNTS["cached"] - before["cached"] == 1, "the same format finds its graph again"


# -- every call, and what is missing ---------------------------------------------------------------------------


def test_another_storage_format_or_deterministic_level_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = cache(Sum().both, tmp_path)
    x, y = tensors()
    expected = cached(x, y)
    monkeypatch.setitem(device.FORMATS, x.data_ptr(), 29)
    with pytest.raises(InputError, match="of storage format 29; allowed: 2, as at load"):
        cached(x, y)
    monkeypatch.delitem(device.FORMATS, x.data_ptr())
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["torch_npu"].npu, "_deterministic_level", 2)
        with pytest.raises(InputError, match="deterministic level"):
            cached(x, y)
    assert torch.equal(cached(x, y).cpu(), expected.cpu())


@pytest.mark.parametrize(
    ("mode", "setting"), [("max-autotune", "matmul.allow_hf32"), ("npugraph_ex", "matmul.cube_math_type")]
)
def test_arithmetic_that_was_set_otherwise_after_the_load_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, setting: str
) -> None:
    cached = cache(Sum().both, tmp_path, mode=mode)
    x, y = tensors()
    expected = cached(x, y)
    of, name = setting.split(".")
    arithmetic = getattr(sys.modules["torch_npu"].npu, of)
    with monkeypatch.context() as patch:
        patch.setattr(arithmetic, name, 2 if name == "cube_math_type" else not arithmetic.allow_hf32)
        with pytest.raises(InputError, match="allow_hf32 of matmul and conv, and cube_math_type"):
            cached(x, y)
        if mode == "npugraph_ex":
            cached.refresh()
            assert torch.equal(cached(x, y).cpu(), expected.cpu())
            assert cached.stats.traces == 2, "an aclgraph is captured for the settings of its time"
        else:
            cached.refresh()
            with pytest.raises(CacheError, match=r"GE was started in this process with allow_hf32 .* once per process"):
                cached(x, y)


def test_ge_keeps_nothing_where_nobody_knows_its_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where `torch.compile` through torchair ran before gearcache was used."""
    cache(Sum().both, tmp_path / "first")(*tensors())  # GE runs from here on
    backend = torchair.core._backend
    monkeypatch.setattr(backend, "_get_global_op_compile_config", backend._get_global_op_compile_config.__wrapped__)
    monkeypatch.setattr(ascend, "_ge_started_with", [])
    x, y = tensors()
    cached = cache(Sum().both, tmp_path / "second", ge_cache=True)
    assert torch.allclose(cached(x, y).cpu(), Sum().both(x, y).cpu())
    assert not list((tmp_path / "second").rglob("*.om"))


def test_the_mode_of_old_name_tells_its_new_name() -> None:
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    with pytest.warns(
        DeprecationWarning, match="mode='reduce-overhead' is deprecated by torchair; use mode='npugraph_ex'"
    ):
        TorchairBackend(NpuOptions(config=config)).check_compiler()


def test_without_torch_npu_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch_npu", None)
        with pytest.raises(BackendUnavailable, match="torch_npu is not installed, see `gearcache doctor`"):
            TorchairBackend().fingerprint()


@pytest.mark.thorough  # it is for a device; what it asks has tests of its own
def test_the_acceptance_script_runs_to_its_end_on_the_emulated_device() -> None:
    script = ROOT / "scripts/npu_acceptance.sh"
    names = ("gears_as_a_product", "a_llama_decodes_in_float16_with_ges_own_cache")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHON": sys.executable}
    done = subprocess.run([script, "--emulated", *names], env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert done.stdout.endswith("all steps passed\n")


def test_autocast_of_the_device_is_in_the_key() -> None:
    torch.set_autocast_enabled("npu", True)
    try:
        assert state_component()["autocast"] == [["npu", str(torch.get_autocast_dtype("npu"))]]
    finally:
        torch.set_autocast_enabled("npu", False)
    assert state_component()["autocast"] == []
