"""User options, checked when you set them, and the environment variables that set their defaults."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from gearcache.cache.layout import REMOTES_VARIABLE, ROOT_VARIABLE, VARIABLE_PREFIXES
from gearcache.cache.limits import DEFAULT_MAX_SIZE
from gearcache.errors import OptionError
from gearcache.guards.evidence.names import a_type

KEY_FILE_VARIABLE = "GEARCACHE_HMAC_KEY_FILE"
SIGNING_KEY_VARIABLE = "GEARCACHE_SIGNING_KEY_FILE"
_Number = TypeVar("_Number", int, float)
#: The text that removes a limit.
NO_LIMIT = "none"

_ALLOWED: dict[str, tuple[Any, ...]] = {
    "backend": ("auto", "inductor", "torchair", "eager"),
    "validate": ("inputs", "gears"),
    "on_miss": (None, "compile", "raise", "eager", "pad", "background"),
    "filling": ("proven", "vouched"),
    "gear_execution": ("static", "ge"),
    "count_shapes": (False, True),
    "repeats": (True, False),
    "target": ("native", "x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8-a", "armv8.2-a", "armv9-a"),
    "dynamic_gears_merge_policy": ("zip", "product"),
}


#: Parts of `torchair.CompilerConfig` that `CompilerConfig` has elsewhere.
_OF_TORCHAIR = ("debug", "dump_config", "experimental_config", "export", "fusion_config", "ge_config")


class _Checked:
    """Refuses unknown option names and values, and names the option, the value and what is allowed.

    Compares and prints by the options. A dataclass would write both for each class, which costs every start.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
            raise AttributeError(_unknown(self, name))
        if name in _ALLOWED and not any(_is_value(value, item) for item in _ALLOWED[name]):
            allowed = ", ".join(repr(item) for item in _ALLOWED[name])
            raise OptionError(f"option `{name}` is {value!r}; allowed: {allowed}")
        is_right, form = _FORMS.get(name, (None, ""))
        if is_right is not None and not is_right(value):
            raise OptionError(f"option `{name}` is {value!r}; it must be {form}")
        if name == "pad_values":
            _check_pad_values(value)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_unknown(self, name))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({options})"


def _unknown(owner: Any, name: str) -> str:
    text = f"{type(owner).__name__} has no option `{name}`"
    if name in _OF_TORCHAIR:
        return (
            f'{text}, which is torchair\'s: write `options={{"{name}.<setting>": <value>}}`, or pass a '
            "`torchair.CompilerConfig` as `torchair=`"
        )
    return f"{text}; it has {', '.join(type(owner).__dataclass_fields__)}"


def _is_value(value: Any, allowed: Any) -> bool:
    return bool(value == allowed) and isinstance(value, bool) == isinstance(allowed, bool)


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)


def _is_duration(value: Any) -> bool:
    if value is None:
        return True
    return not isinstance(value, bool) and isinstance(value, (int, float)) and 0 < value <= threading.TIMEOUT_MAX


#: Options that take any value of one form: a test of a value, and the form in words.
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "jobs": (_is_count, "an int of at least 1"),
    "max_variants": (lambda value: value is not None and _is_count(value), "an int of at least 1"),
    "compile_timeout": (_is_duration, "a number of seconds above 0"),
    "label": (
        lambda value: value is None or (isinstance(value, str) and len(value) <= 40 and value.isidentifier()),
        "a name of at most 40 letters, digits and underscores",
    ),
    "mode": (lambda value: value is None or isinstance(value, str), "a text or None"),
    "options": (
        lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
        "a dict like {'epilogue_fusion': False}",
    ),
    "strict": (lambda value: value is None or isinstance(value, bool), "True, False or None"),
    "inference_config": (lambda value: isinstance(value, InferenceConfig), "a gearcache.options.InferenceConfig"),
    "torchair": (
        lambda value: value is None or _policy_of_torchair(value) is not None,
        "a torchair.CompilerConfig or None",
    ),
}


def _check_pad_values(values: Any) -> None:
    if not isinstance(values, Mapping) or not all(isinstance(path, str) for path in values):
        raise OptionError(f"option `pad_values` is {values!r}; it must be a dict like {{'ids': 0}}")
    for path, value in values.items():
        fills = list(value.values()) if isinstance(value, Mapping) else [value]
        numbers = all(isinstance(fill, (bool, int, float)) for fill in fills)
        dims = not isinstance(value, Mapping) or all(type(dim) is int and dim >= 0 for dim in value)
        if not (fills and numbers and dims and len(set(map(repr, fills))) == 1):
            raise OptionError(
                f"option `pad_values` of `{path}` is {value!r}; it must be a number, or {{dim: number}} with one number"
            )


@dataclass(eq=False, repr=False)
class InferenceConfig(_Checked):
    """How gears of several dims combine: `zip` pairs them, `product` takes every combination."""

    dynamic_gears_merge_policy: str = "zip"


@dataclass(eq=False, repr=False)
class CompilerConfig(_Checked):
    """Options of a cached method. Its first call reads them; later changes have no effect.

    - `backend`: `auto` (Inductor on CPU, torchair on an NPU), `inductor`, `torchair`, or `eager` (the recorded ATen
      graph, without a compiler; it ignores `mode` and `options`).
    - `mode`: passed to the backend; None or `"default"` with Inductor; with torchair `"max-autotune"` (GE, the
      default), `"npugraph_ex"` or `"reduce-overhead"`, which `auto` ignores on a CPU.
    - `options`: settings of the backend (`torch._inductor.config` names with Inductor, dotted names of
      `torchair.CompilerConfig` or those of npugraph_ex with torchair).
    - `torchair`: a `torchair.CompilerConfig`, from which backend `torchair` takes mode and options, instead of `mode`
      and `options`. It also gives the gear policy, unless `inference_config` sets another than the default.
    - `gear_execution`: `static` makes one graph per gear; `ge` makes one graph in which GE switches between the gears
      (torchair in mode `"max-autotune"` only).
    - `validate`: `inputs` checks dtype, device, sizes, strides and global state on every call; `gears` trusts you and
      only looks up the gear under that state. A wrong tensor under `gears` is an out-of-bounds read.
    - `on_miss`: what a call outside all gears does: `raise`, `compile` (add the gear), `eager` (run the method itself),
      or `pad` (fill the inputs named by `pad_values` up to the next gear and cut the outputs). None is `raise`
      for methods with gears and `compile` for others. With `background` no call waits for a compile, at declared gears
      neither: the method itself serves while another process builds (a fork: CPU only).
    - `pad_values`: argument path -> number to fill with, or `{dim: number}` to pad these dims only. A method whose
      results padding could affect is refused with the operator's name.
    - `filling`: `proven`, or `vouched`: you guarantee that padding does not affect results, for example because the
      model's library pads batches itself, behind the same mask. gearcache cuts and returns the graph's result.
    - `strict`: raise on a fault of the cache instead of warning and compiling (None: `$GEARCACHE_STRICT`).
    - `jobs`: compile processes (None: `$GEARCACHE_JOBS`, else the number of cores).
    - `compile_timeout`: seconds that a compile process may take for one gear; then it is ended with its
      compilers, and the call raises `CompileError` (None: `$GEARCACHE_COMPILE_TIMEOUT`, else 3600).
    - `count_shapes`: also count the shapes that a dynamic graph serves (the first 10,000), for `.stats.shapes` and
      `suggest_gears`; static graphs always count theirs.
    - `label`: replaces the name of the module's class in entries, messages, `.stats` and metrics, to distinguish models
      of one class: `query.forward` instead of `Encoder.forward`. None is the name of the class.
    - `max_variants`: how many traces one entry may hold.
    - `repeats`: compile equal layers of a model once for each gear (Inductor only). Results may differ from those of
      one graph by rounding. False compiles the graph as a whole.
    - `target`: the CPUs that code is compiled for (Inductor only). `native` uses everything that this host's CPU has,
      and only equal CPUs share its entries. `x86-64-v2`, `-v3` (AVX2) and `-v4` (AVX-512), or `armv8-a`,
      `armv8.2-a` and `armv9-a`, make one entry for all hosts that have at least that. On a lesser CPU the first call
      raises an `OptionError`, which names what the CPU lacks.
    """

    backend: str = "auto"
    mode: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    inference_config: InferenceConfig = field(default_factory=InferenceConfig)
    validate: str = "inputs"
    on_miss: str | None = None
    pad_values: dict[str, Any] = field(default_factory=dict)
    filling: str = "proven"
    strict: bool | None = None
    jobs: int | None = None
    compile_timeout: float | None = None
    label: str | None = None
    max_variants: int = 32
    count_shapes: bool = False
    gear_execution: str = "static"
    torchair: Any = None
    repeats: bool = True
    target: str = "native"


class Settings(Struct, frozen=True):
    """The options of one cached method, with the environment applied."""

    backend: str
    mode: str | None
    options: Mapping[str, Any]
    policy: str
    validate: str
    on_miss: str
    pad_values: Mapping[str, Any]
    filling: str
    strict: bool
    jobs: int
    max_variants: int
    count_shapes: bool
    lock_timeout: float
    compile_timeout: float
    gear_execution: str = "static"
    #: The user's torchair.CompilerConfig.
    torchair_config: Any = None
    hmac_key_file: Path | None = None
    signing_key_file: Path | None = None
    max_size: int | None = None
    max_age: float | None = None
    repeats: bool = True
    #: Tiers beyond this host as the user wrote them, and where; see `gearcache.cache.remote.urls`.
    remotes: str | tuple[str, ...] = ""
    remotes_source: str = REMOTES_VARIABLE
    target: str = "native"

    @property
    def compile_options(self) -> dict[str, Any]:
        """The part that changes compiled code, for the key."""
        fields = {"mode": self.mode, "options": dict(self.options), "gear_execution": self.gear_execution}
        return fields if self.repeats else fields | {"repeats": False}


def resolve_settings(config: Any, *, has_gears: bool, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a config (ours or torchair's); `TypeError` for anything else."""
    if config is None:
        config = CompilerConfig()
    if not isinstance(config, CompilerConfig):
        config = _from_torchair(config)
    if (config.on_miss == "pad") != bool(config.pad_values) or (config.pad_values and not has_gears):
        raise OptionError(
            f"option `on_miss` is {config.on_miss!r} and `pad_values` is {config.pad_values!r}"
            f"{'' if has_gears else ', without gears'}; padding needs on_miss='pad', pad_values and gears"
        )
    if config.filling == "vouched" and not config.pad_values:
        raise OptionError("option `filling` is 'vouched' without filling: it needs on_miss='pad' and pad_values")
    if config.torchair is not None and (config.mode is not None or config.options):
        raise OptionError(
            f"option `torchair` is given beside `mode` {config.mode!r} and `options` {dict(config.options)!r}: "
            "set them in the torchair config, which replaces both"
        )
    variables = _Given(environ)
    values = variables.values()
    strict = config.strict if config.strict is not None else values["strict"]
    if variables.wrong and strict:
        raise OptionError(variables.wrong[0])
    if variables.wrong or variables.are_others:
        from gearcache.variables import tell_once

        tell_once(variables.wrong, environ)
    return Settings(
        backend=config.backend,
        mode=config.mode,
        options=dict(config.options),
        policy=_policy(config),
        validate=config.validate,
        pad_values=dict(config.pad_values),
        filling=config.filling,
        on_miss=config.on_miss or ("raise" if has_gears else "compile"),
        strict=strict,
        jobs=config.jobs or values["jobs"],
        max_variants=config.max_variants,
        count_shapes=config.count_shapes,
        compile_timeout=config.compile_timeout or float(values["compile_timeout"]),
        lock_timeout=float(values["lock_timeout"]),
        gear_execution=config.gear_execution,
        repeats=config.repeats,
        target=config.target,
        torchair_config=config.torchair,
        remotes=environ.get(REMOTES_VARIABLE, "").strip(),
        hmac_key_file=_file(environ, KEY_FILE_VARIABLE),
        signing_key_file=_file(environ, SIGNING_KEY_VARIABLE),
        max_size=values["max_size"],
        max_age=values["max_age"],
    )


def _file(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def wrong_values(environ: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the values of the environment variables."""
    variables = _Given(environ)
    variables.values()
    return variables.wrong


class _Given:
    """The environment variables. One with a wrong value counts as not set and is noted, so that no model breaks."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._read = {REMOTES_VARIABLE, KEY_FILE_VARIABLE, SIGNING_KEY_VARIABLE, ROOT_VARIABLE}
        self.wrong: list[str] = []

    def values(self) -> dict[str, Any]:
        """Return the values, or the defaults of variables that are not set."""
        for name in ("GEARCACHE_PROGRESS", "GEARCACHE_WHOLE_TORCHAIR"):  # read where they are used
            self._value(name, _flag, default=False)
        return {
            "strict": self._value("GEARCACHE_STRICT", _flag, default=False),
            "jobs": self._value("GEARCACHE_JOBS", _count, default=os.cpu_count() or 1),
            "compile_timeout": self._value("GEARCACHE_COMPILE_TIMEOUT", _count, default=3600),
            "lock_timeout": self._value("GEARCACHE_LOCK_TIMEOUT", _count, default=1800),
            "max_size": self._value("GEARCACHE_MAX_SIZE", _size, default=DEFAULT_MAX_SIZE),
            "max_age": self._value("GEARCACHE_MAX_AGE", _age, default=None),
        }

    @property
    def are_others(self) -> bool:
        """Whether the environment has other variables with such a prefix, which may be misspelt."""
        return any(name.startswith(VARIABLE_PREFIXES) and name not in self._read for name in self._environ)

    def _value(self, name: str, parse: Callable[[str], Any], *, default: Any) -> Any:
        self._read.add(name)
        text = self._environ.get(name, "")
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.wrong.append(f"environment variable `{name}` is {text!r}; {error}")
            return default


def _flag(text: str) -> bool:
    if text not in ("0", "false", "1", "true"):
        raise ValueError("it must be 0 or 1")
    return text in ("1", "true")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError("it must be a whole number of at least 1")
    return int(text)


def _size(text: str) -> int | None:
    from gearcache.cache.quantities import parse_size

    return None if text == NO_LIMIT else _some(parse_size(text))


def _age(text: str) -> float | None:
    from gearcache.cache.quantities import parse_age

    return None if text == NO_LIMIT else _some(parse_age(text))


def _some(limit: _Number) -> _Number:
    if not limit:  # it would keep nothing, and people write it for no limit
        raise ValueError(f"a cache without a limit is `{NO_LIMIT}`")
    return limit


def _policy(config: CompilerConfig) -> str:
    """Return the gear policy: ours, or that of the torchair config where ours is the default.

    Both have the same default and one other value, so that two that were set cannot differ.
    """
    own, theirs = config.inference_config.dynamic_gears_merge_policy, _policy_of_torchair(config.torchair)
    if theirs is None or own != InferenceConfig().dynamic_gears_merge_policy:
        return own
    return InferenceConfig(theirs).dynamic_gears_merge_policy  # refuses other values


def _policy_of_torchair(config: Any) -> str | None:
    """Return the gear policy of a torchair config; None if it has none."""
    policy = getattr(getattr(config, "inference_config", None), "dynamic_gears_merge_policy", None)
    return None if policy is None else str(getattr(policy, "value", policy))


def _from_torchair(config: Any) -> CompilerConfig:
    """Wrap a torchair.CompilerConfig, which also gives the gear policy; only backend `torchair` reads the rest."""
    if _policy_of_torchair(config) is None:
        raise TypeError(
            f"config is {a_type(config)}; it must be a gearcache.CompilerConfig or a torchair.CompilerConfig"
        )
    return CompilerConfig(torchair=config)
