"""The parameters of a drafted method, and the state of its module: the values that calls pass and callers change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.fuzz.varying.draft import Draft
from benchmarks.fuzz.varying.lines import STATE
from benchmarks.fuzz.varying.values import PLACES, Number, Parameter, Values

_SHAPES = (("B", "L"), ("B", "L"), ("B", 4), ("B", "L", 4), ("B", 2, "L"), ("B",))
_DTYPES = ("float32",) * 8 + ("bfloat16", "float64", "float64", "float16")
_INT_DTYPES = ("int64", "int64", "int32", "uint8", "int16", "bool")


def tensor_text(shape: Sequence[str | int], dtype: str, offset: int) -> Callable[[Values], str]:
    """Return the text of a tensor argument whose sizes follow from the values of a call."""

    def text(values: Values) -> str:
        sizes = tuple(values[size] if isinstance(size, str) else size for size in shape)
        kind = "" if dtype == "float32" else f', "{dtype}"'
        return f"tensor({sizes}, {values.get('seed', 0) + offset}{kind})"

    return text


def add_tensors(draft: Draft) -> None:
    """Add one to three tensors, maybe a list of them."""
    chance = draft.chance
    shape = chance.choice(_SHAPES)
    draft.add_parameter(Parameter("x", tensor_text(shape, chance.choice(_DTYPES), 0), is_tensor=True))
    draft.sizes = [size for size in dict.fromkeys(shape) if isinstance(size, str)]
    if chance.random() < 0.4:
        other = chance.choice([shape, shape[:1], ("B", 4), ("L",)])
        dtype = chance.choice(_INT_DTYPES) if chance.random() < 0.7 else chance.choice(_DTYPES)
        draft.add_parameter(Parameter("y", tensor_text(other, dtype, 1), is_tensor=True))
        draft.sizes += [size for size in other if isinstance(size, str) and size not in draft.sizes]
    if chance.random() < 0.12:

        def items(values: Values) -> str:
            each = tensor_text(("B", 4), "float32", 0)
            return "[" + ", ".join(each(values | {"seed": 20 + index}) for index in range(max(0, values["K"]))) + "]"

        draft.add_parameter(Parameter("xs", items))
        draft.sizes.append("K")
        draft.wants["lengths"] = True


def add_numbers(draft: Draft) -> None:
    """Add one to four ints, and in one case of three one or two floats, each at a possible place of a call."""
    chance = draft.chance
    by_place: dict[str, list[Number]] = {}
    kinds = dict.fromkeys("nmkp"[: chance.choice([1, 1, 1, 2, 2, 3, 4])], "")
    kinds |= dict.fromkeys("tu"[: chance.choice([0, 0, 0, 0, 1, 2])], "real")
    for name, known in kinds.items():
        kind = known or chance.choice(["small", "small", "size", "size", "size", "plain", "plain", "flag"])
        place = chance.choice(PLACES)
        members = by_place.setdefault(place, [])
        members.append(draft.add_number(name, kind, place, _READ[place].format(name=name, index=len(members))))
    for place, members in by_place.items():
        _add_place(draft, place, members)


_READ = {
    "positional": "{name}",
    "keyword": "{name}",
    "dict": 'opts["{name}"]',
    "tuple": "pair[{index}]",
    "list": "counts[{index}]",
    "dataclass": "cfg.{name}",
    "nested": 'deep["inner"][{index}]',
    "module": "self.{name}_",
    "module list": "self.counts[{index}]",
    "module dict": 'self.opts["{name}"]',
}


def value_text(number: Number, values: Values) -> str:
    """Return the text of the value of a number."""
    value = values[number.name]
    text = repr(bool(value)) if number.kind == "flag" else repr(value)
    return f"float({text!r})" if text in ("inf", "nan") else text


def _add_place(draft: Draft, place: str, members: list[Number]) -> None:
    def listed(values: Values) -> str:
        return ", ".join(value_text(number, values) for number in members)

    def named(values: Values) -> str:
        return ", ".join(f'"{number.name}": {value_text(number, values)}' for number in members)

    if place in ("positional", "keyword"):
        for number in members:
            is_keyword = place == "keyword"
            default = "3" if is_keyword and draft.chance.random() < 0.3 else None
            draft.add_parameter(Parameter(number.name, _own_text(number), default, is_keyword))
    elif place == "dict":
        draft.add_parameter(Parameter("opts", lambda values: "{" + named(values) + "}"))
    elif place == "tuple":
        draft.add_parameter(Parameter("pair", lambda values: f"({listed(values)},)"))
    elif place == "list":
        draft.add_parameter(Parameter("counts", lambda values: f"[{listed(values)}]"))
    elif place == "dataclass":
        fields = "".join(f"    {number.name}: {'float' if number.kind == 'real' else 'int'}\n" for number in members)
        draft.add_top(f"\n\n@dataclasses.dataclass\nclass Cfg:\n{fields}    seen: int = 0\n")
        draft.add_parameter(Parameter("cfg", lambda values: f"s.Cfg({listed(values)})"))
    elif place == "nested":
        draft.add_parameter(Parameter("deep", lambda values: f'{{"inner": ({listed(values)},), "name": "a"}}'))
    elif place == "module":
        for number in members:
            draft.add_setup(f"self.{number.name}_ = {value_text(number, draft.tried)}")
            draft.setters.append(_setter(number))
    elif place == "module list":
        draft.add_setup(f"self.counts = [{listed(draft.tried)}]")
        target = draft.chance.choice(["m.counts", "m.counts[:]"])
        draft.setters.append(lambda values: f"{target} = [{listed(values)}]")
    else:
        draft.add_setup(f"self.opts = {{{named(draft.tried)}}}")
        form = draft.chance.choice(["m.opts = {}", "m.opts.update({})"])
        draft.setters.append(lambda values: form.replace("{}", f"{{{named(values)}}}"))


def _own_text(number: Number) -> Callable[[Values], str]:
    return lambda values: value_text(number, values)


def _setter(number: Number) -> Callable[[Values], str]:
    return lambda values: f"m.{number.name}_ = {value_text(number, values)}"


def add_state(draft: Draft) -> list[tuple[str, ...]]:
    """Give the module some state; returns the lines that use it."""
    chance = draft.chance
    found = [name for name in _SETUP if chance.random() < (0.1 if name == "factor" else 0.2)]
    for name in found:
        for line in _SETUP[name]:
            draft.add_setup(line)
        draft.features.append(name)
    if "table" in found:
        draft.sizes.append("T")
        draft.setters.append(lambda values: f"m.table = tensor(({values['T']}, 4), 3)")
    if "factor" in found:
        draft.tried["factor"] = 1
        draft.numbers.append(Number("factor", "factor", "module", "self.factor", "few", (1, 2, 3)))
        draft.setters.append(lambda values: f"m.factor = {values['factor'] / 2}")
    if "step" in found:
        draft.ints["self.step"] = "size"
    if "kept" in found and chance.random() < 0.3:
        draft.sizes.append("K")
        draft.setters.append(lambda values: f"m.kept = [tensor((4, 6), item) for item in range({max(0, values['K'])})]")
    given = {parameter.name for parameter in draft.parameters}
    if "xs" in given:
        found.append("lengths")
    found += [name for name in ("opts", "cfg") if name in given]
    return [STATE[name] for name in found]


_SETUP: dict[str, tuple[str, ...]] = {
    "cache": ('self.register_buffer("cache", torch.zeros(2, 16, 4))',),
    "kept": ("self.kept = [torch.ones(4, 6), torch.zeros(4, 6)]",),
    "layers": (
        "self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])",
        'self.register_buffer("base", torch.ones(3, 4))',
    ),
    "places": ("self.places = torch.nn.Embedding(64, 4)",),
    "table": ("self.table = torch.ones(4, 4)",),
    "factor": ("self.factor = 0.5",),
    "step": ("self.step = 0", "self.last = 0"),
}
