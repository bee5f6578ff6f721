"""Everything that `cache_compile` and the options refuse before the first call, and why."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from gearcache import errors, variables
from gearcache.errors import GearSpecError, OptionError
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.inductor.backend import RECIPE, InductorBackend, inductor_variables
from gearcache.ge_cache.inductor.options import compile_options
from gearcache.ge_cache.select import select_backend
from gearcache.options import CompilerConfig, resolve_settings


class Net(nn.Module):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Other:
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_only_methods_of_modules_are_taken() -> None:
    with pytest.raises(TypeError, match="is a function, not a method"):
        gearcache.cache_compile(lambda x: x)
    with pytest.raises(TypeError, match="not of Other"):
        gearcache.cache_compile(Other().run)
    with pytest.raises((TypeError, RuntimeError)) as caught:

        class Plain:
            @gearcache.cache_compile()
            def run(self, x: torch.Tensor) -> torch.Tensor:
                return x

    assert "torch.nn.Module" in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        pytest.param({"fullgraph": False}, ValueError, "fullgraph is False", id="fullgraph"),
        pytest.param({"dynamic": 1}, TypeError, "dynamic is 1", id="dynamic"),
        pytest.param({"config": 3}, TypeError, "config is an int", id="config"),
        pytest.param({"custom_decompositions": 3}, TypeError, "custom_decompositions is 3", id="decompositions"),
        pytest.param({"unknown": 3}, TypeError, "unknown", id="unknown keyword"),
        pytest.param({"gears": 3}, GearSpecError, "gears is an int", id="gears"),
        pytest.param({"gears": {"x": {0: [0]}}}, GearSpecError, "0 is not a size", id="zero"),
        pytest.param({"gears": {"x": {0: [*range(1, 102)]}}}, GearSpecError, "101 sizes", id="too many"),
        pytest.param({"gears": {"x": {0: [1, 2], 1: [1]}}}, GearSpecError, "equally many", id="zip lengths"),
    ],
)
def test_a_wrong_parameter_is_refused_at_once(keywords: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        gearcache.cache_compile(Net().run, **keywords)
    with pytest.raises(error, match=words):
        gearcache.cache_compile(**keywords)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("backend", "llvm"),
        ("on_miss", "crash"),
        ("jobs", 0),
        ("compile_timeout", 0),
        ("label", "a b"),
    ],
)
def test_an_option_outside_what_is_allowed_is_a_value_error(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"option `{option}` is {value!r}"):
        CompilerConfig(**{option: value})
    config = CompilerConfig()
    with pytest.raises(ValueError, match=rf"option `{option}`"):
        setattr(config, option, value)


def test_an_unknown_option_is_an_attribute_error_that_lists_the_known() -> None:
    with pytest.raises(AttributeError, match=r"no option `backnd`.*backend"):
        CompilerConfig().backnd = "eager"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        CompilerConfig(backnd="eager")  # type: ignore[call-arg]


@pytest.mark.parametrize(("has_gears", "expected"), [(True, "raise"), (False, "compile")])
def test_the_default_of_on_miss_depends_on_gears(has_gears: bool, expected: str) -> None:
    assert resolve_settings(None, has_gears=has_gears, environ={}).on_miss == expected
    assert resolve_settings(CompilerConfig(on_miss="eager"), has_gears=has_gears).on_miss == "eager"


def test_the_environment_gives_what_the_config_leaves_open() -> None:
    environ = {
        "GEARCACHE_STRICT": "1",
        "GEARCACHE_JOBS": "3",
        "GEARCACHE_LOCK_TIMEOUT": "7",
        "GEARCACHE_COMPILE_TIMEOUT": "9",
    }
    settings = resolve_settings(None, has_gears=False, environ=environ)
    assert (settings.strict, settings.jobs, settings.lock_timeout, settings.compile_timeout) == (True, 3, 7.0, 9.0)
    config = CompilerConfig(strict=False, jobs=1, compile_timeout=0.5)
    settings = resolve_settings(config, has_gears=False, environ=environ)
    assert (settings.strict, settings.jobs, settings.compile_timeout) == (False, 1, 0.5)


def test_a_cache_has_a_limit_of_size_until_somebody_takes_it_away() -> None:
    def limits(**environ: str) -> tuple[int | None, float | None]:
        settings = resolve_settings(None, has_gears=False, environ=environ)
        return settings.max_size, settings.max_age

    assert limits() == (10 * 10**9, None)
    assert limits(GEARCACHE_MAX_SIZE="20GB", GEARCACHE_MAX_AGE="1d") == (20 * 10**9, 86400.0)
    assert limits(GEARCACHE_MAX_SIZE="none", GEARCACHE_MAX_AGE="none") == (None, None)


WRONG = [
    pytest.param("GEARCACHE_JOBS", "0", "is '0'; it must be a whole number of at least 1", id="zero"),
    pytest.param("GEARCACHE_MAX_SIZE", "5", "is '5'; `5` is no size; write a number and B", id="size"),
    pytest.param("GEARCACHE_MAX_SIZE", "0", "is '0'; a cache without a limit is `none`", id="no size"),
    pytest.param("GEARCACHE_MAX_SIZE", "0GB", "is '0GB'; a cache without a limit is `none`", id="no gigabytes"),
    pytest.param("GEARCACHE_MAX_AGE", "0d", "is '0d'; a cache without a limit is `none`", id="no age"),
    pytest.param("GEARCACHE_STRICT", "off", "is 'off'; it must be 0 or 1", id="flag"),
]


@pytest.mark.parametrize(("name", "text", "words"), WRONG)
def test_a_wrong_variable_breaks_no_model_and_is_told_once(
    name: str, text: str, words: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variables, "_said", set())
    environ = {"GEARCACHE_MAX_SIZ": "5GB", "GEARCACHE_PROGRESS": "0", name: text}
    for _ in range(2):
        assert resolve_settings(None, has_gears=False, environ=environ) == resolve_settings(
            None, has_gears=False, environ={}
        )
    wrong, misspelt = (record.getMessage() for record in caplog.records)
    assert wrong.startswith(f"environment variable `{name}` {words}")
    assert wrong.endswith("; the default is used")
    assert misspelt == "nothing reads `GEARCACHE_MAX_SIZ`; `GEARCACHE_MAX_SIZE` is meant?"
    with pytest.raises(OptionError, match=name):
        resolve_settings(CompilerConfig(strict=True), has_gears=False, environ=environ)


def test_a_torchair_config_gives_its_merge_policy() -> None:
    policy = SimpleNamespace(dynamic_gears_merge_policy=SimpleNamespace(value="product"))
    theirs = SimpleNamespace(inference_config=policy)
    assert resolve_settings(theirs, has_gears=True).policy == "product"
    assert resolve_settings(CompilerConfig(torchair=theirs), has_gears=True).policy == "product"


@pytest.mark.parametrize("name", ["mode", "options"])
def test_mode_and_options_beside_a_torchair_config_are_refused(name: str) -> None:
    others: dict[str, Any] = {"mode": "npugraph_ex"} if name == "mode" else {"options": {"debug.run_eagerly": True}}
    policy = SimpleNamespace(dynamic_gears_merge_policy=SimpleNamespace(value="zip"))
    config = CompilerConfig(torchair=SimpleNamespace(inference_config=policy), **others)
    with pytest.raises(OptionError, match=rf"`torchair` is given beside .*`{name}` "):
        resolve_settings(config, has_gears=True)


def test_what_is_no_torchair_config_is_refused_as_one() -> None:
    with pytest.raises(OptionError, match=r"`torchair` is 'max-autotune'; it must be a torchair\.CompilerConfig"):
        CompilerConfig(torchair="max-autotune")


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_only_npus_switch_gears_themselves(backend: str) -> None:
    settings = resolve_settings(CompilerConfig(backend=backend, gear_execution="ge"), has_gears=True)
    with pytest.raises(OptionError, match=f"only backend `torchair` has it, not `{backend}`"):
        select_backend(settings, torch.nn.Linear(2, 2), ())


def test_a_merge_policy_of_ours_counts_beside_a_torchair_config_that_has_the_default() -> None:
    policy = SimpleNamespace(dynamic_gears_merge_policy=SimpleNamespace(value="zip"))
    ours = CompilerConfig(torchair=SimpleNamespace(inference_config=policy))
    assert resolve_settings(ours, has_gears=True).policy == "zip"
    ours.inference_config.dynamic_gears_merge_policy = "product"
    assert resolve_settings(ours, has_gears=True).policy == "product"


@pytest.mark.parametrize(
    ("gears", "words"),
    [
        pytest.param({}, "must be a dict like", id="empty"),
        pytest.param({2: [2, 4]}, "dim index is 2; allowed: 0 to 1", id="dim"),
        pytest.param({0: [2]}, "1 sizes were given; allowed: 2 to 100", id="one size"),
    ],
)
def test_set_dim_gears_refuses_and_marks_nothing(gears: Any, words: str) -> None:
    x = torch.ones(2, 4)
    with pytest.raises(GearSpecError, match=words):
        gearcache.set_dim_gears(x, gears)
    gearcache.set_dim_gears(x, {0: [2, 4]})
    gearcache.set_dim_gears(x, {0: [2, 4]})
    with pytest.raises(GearSpecError, match="already has the gears"):
        gearcache.set_dim_gears(x, {0: [2, 8]})
    with pytest.raises(TypeError, match="takes a tensor"):
        gearcache.set_dim_gears([1], {0: [2, 4]})  # type: ignore[arg-type]


#: What a parameter of an error may be, by its annotation.
DATA: dict[str, Any] = {
    "str": "a text",
    "int": 3,
    "float": 2.5,
    "Path | str": "/a/path",
    "tuple[str, ...]": ("torch._C._gone", "torch._C._other"),
    "Mapping[str, str]": {"10.0.0.1": "reason"},
    "Sequence[object]": (),
}


def test_every_error_keeps_text_and_data_through_pickling() -> None:
    kinds = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    for kind in kinds - {errors.GearcacheError, errors.CacheError}:
        error = kind(*(DATA[each.annotation] for each in inspect.signature(kind).parameters.values()))
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("freezing", True, "values of weights while compiling"),
        ("max_autotune", True, "packs the values of weights"),
        ("aot_inductor.use_runtime_constant_folding", True, "a later update would not be seen"),
    ],
)
def test_settings_that_bake_weights_into_code_are_refused(name: str, value: bool, reason: str) -> None:
    for backend in ("inductor", "auto"):
        config = CompilerConfig(backend=backend, options={name: value})
        with pytest.raises(ValueError, match=f"sets `{name}` to {value}; with backend `inductor` it is .*{reason}"):
            gearcache.cache_compile(Net().run, config=config)
        gearcache.cache_compile(Net().run, config=CompilerConfig(backend=backend, options={name: not value}))
    with pytest.raises(ValueError, match=f"sets `{name}`"):
        InductorBackend({name: value})


def test_a_mode_of_inductor_is_refused_and_not_ignored(cache_dir: Path) -> None:
    words = "option `mode` is 'max-autotune'; with backend `inductor` it is None or 'default'"
    with pytest.raises(ValueError, match=words):
        gearcache.cache_compile(Net().run, config=CompilerConfig(backend="inductor", mode="max-autotune"))
    cached = gearcache.cache_compile(Net().run, config=CompilerConfig(mode="max-autotun"))
    with pytest.raises(ValueError, match="option `mode` is 'max-autotun'; with backend `inductor`"):
        cached(torch.zeros(2))
    gearcache.cache_compile(Net().run, config=CompilerConfig(backend="inductor", mode="default"))


@pytest.mark.usefixtures("compiled_here")
def test_a_mode_of_npus_is_left_aside_where_a_backend_is_found_for_cpus(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One config for a laptop and an NPU."""

    def compile_now(*_: object) -> None:
        raise RuntimeError("it came to a compile")

    monkeypatch.setattr(InductorBackend, "compile", compile_now)
    cached = gearcache.cache_compile(Net().run, config=CompilerConfig(mode="max-autotune", strict=True))
    with pytest.raises(errors.CompileError, match="it came to a compile"):
        cached(torch.zeros(2))


@pytest.mark.parametrize("name", ["experimental_config", "ge_config"])
def test_a_name_of_torchair_s_config_is_refused_with_what_to_write(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no option `{name}`.*options=.*{name}\..*torchair="):
        getattr(CompilerConfig(), name)


def test_inductor_s_variables_are_in_the_key_but_for_where_it_works() -> None:
    start = InductorBackend().fingerprint()
    for name in ("CACHE_DIR", "COMPILE_THREADS", "FX_GRAPH_CACHE"):
        assert inductor_variables({f"TORCHINDUCTOR_{name}": "/x"}) == {}
    for name in ("EMULATE_PRECISION_CASTS", "CPP_ENABLE_UNSAFE_MATH_OPT_FLAG", "A_NAME_OF_TOMORROW"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(f"TORCHINDUCTOR_{name}", "1")
            assert InductorBackend().fingerprint() != start
    assert InductorBackend().fingerprint() == start


def test_an_assigned_setting_of_inductor_is_told_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    import torch._inductor.config as settings

    with settings.patch({"emulate_precision_casts": True, "cpp.simdlen": 0}):
        InductorBackend({"cpp.simdlen": 1}).check_compiler()
    (record,) = caplog.records
    assert "`torch._inductor.config.emulate_precision_casts`" in record.message
    assert "`options`" in record.message


def test_the_environment_cannot_bake_weights_into_code_either() -> None:
    job = CompileJob("", "", None, [], {}, {"freezing": True, "epilogue_fusion": False}, 1)
    settings = compile_options(job)
    assert (settings["freezing"], settings["epilogue_fusion"]) == (False, False)
    assert settings["always_keep_tensor_constants"] is True


def test_a_setting_that_inductor_does_not_have_is_refused_before_a_compile(cache_dir: Path) -> None:
    config = CompilerConfig(backend="inductor", options={"epilog_fusion": True})
    cached = gearcache.cache_compile(Net().run, config=config)
    with pytest.raises(
        ValueError, match=r"`epilog_fusion`, which `torch._inductor.config` does not have.*epilogue_fusion"
    ):
        cached(torch.zeros(2))
    assert cached.stats.traces == 0


def test_what_inductor_makes_of_the_same_graph_has_a_number() -> None:
    """Raise `RECIPE` with any of these: entries that an older recipe made must not be hit."""
    ours = compile_options(CompileJob("", "", None, [], {}, {}, 1))
    assert InductorBackend().fingerprint()["recipe"] == RECIPE == 8
    assert ours == {
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "compile_threads": 1,
        "cpp.threads": 1,
        "freezing": False,
        "freezing_discard_parameters": False,
        "always_keep_tensor_constants": True,
        "max_autotune": False,
        "max_autotune_gemm": False,
        "aot_inductor.use_runtime_constant_folding": False,
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": None,
        "aot_inductor.package": False,
        "aot_inductor.package_cpp_only": None,
        "fx_wrapper": False,
    }
