"""Methods whose arguments, attributes, globals, closures and keys are called like anything in gearcache itself."""

from __future__ import annotations

import builtins
import functools
import keyword
import random
import re
import sys
import types
import unicodedata
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run
from tests.support.source_tree import ROOT

#: How many names one method has.
_MANY = 180
_DRAWN = 20
#: Classes of exceptions are builtins like the others.
_LEFT_OUT = ("Error", "Warning", "__debug__")
_SPECIAL = [
    *(name for name in dir(builtins) if not keyword.iskeyword(name) and not name.endswith(_LEFT_OUT)),
    *keyword.softkwlist,
    *("frame", "miss", "missed", "mismatch", "state0", "table0", "only0", "dynamic0", "b1", "p1_0", "c", "dispatch"),
    *("_gearcache_self", "_gearcache_instance", "__gearcache_0_0", "_g_", "_g__", "_g_type", "_g_frame", "_g_instance"),
    *("self", "this", "instance", "args", "kwargs", "arguments", "keywords", "L", "G", "t0", "s0", "u0", "v0", "f0"),
    *(
        "__import_torch",
        "__import_x",
        "___x",
        "a_1_c0",
        "__compiled_fn_0",
        "__compiled_graph",
        "__resume_at_1",
        "__builtins_dict___1",
    ),
    *("tmp_0", "graph_out_0", "run", "graph", "value", "out", "tick", "seen", "place", "max", "min", "check0"),
    *("größe", "ключ", "名", "fi", "ªx", "_dunder_", "__x", "_C__x", "x1", "__compiled_graph"),
]
#: Attributes that no source text could name so: the compiler takes the first for the second.
_SPELLED = ("\ufb01", "fi", "class", "a b", "", "x" * 300)


@functools.cache
def names_of_gearcache() -> list[str]:
    """Return every name in the sources of gearcache, and others that generated code or Dynamo might use."""
    found = set(_SPECIAL)
    for folder in ("guards", "ge_cache", "cache", "src/gearcache"):
        for file in sorted((ROOT / folder).glob("**/*.py")):
            text = re.sub(r'""".*?"""|#[^\n]*', "", file.read_text(), flags=re.DOTALL)
            found.update(re.findall(r"[^\W\d]\w*", text))
    return sorted({unicodedata.normalize("NFKC", name) for name in found if not keyword.iskeyword(name)})


def _draws(seed: int) -> list[list[str]]:
    """Return the special names and others that are drawn, in lists of the length that one method takes."""
    drawn = random.Random(seed)
    others = [name for name in names_of_gearcache() if name not in _SPECIAL]
    names = [*{unicodedata.normalize("NFKC", name) for name in _SPECIAL}, *drawn.sample(others, _DRAWN)]
    names.sort()
    drawn.shuffle(names)
    return [names[begin : begin + _MANY] for begin in range(0, len(names) - 30, _MANY)]


def define(name: str, text: str, /, **values: Any) -> types.ModuleType:
    """Return a module made of text, which finds `values` among its globals."""
    module = types.ModuleType(f"tests.scenarios.named_{name}")
    sys.modules[module.__name__] = module
    vars(module).update(values)
    exec(compile(text, f"<{name}>", "exec"), vars(module))  # noqa: S102 - text that is made above
    return module


def _tensor(number: int) -> Tensor:
    return torch.arange(3.0) + number


def _lined_up(instance: str, tensors: list[str]) -> str:
    """Return a term in which each tensor has a place of its own: one operation, however many they are."""
    return f"{instance}.lined_up([{', '.join(tensors)}])"


def _parameters(names: list[str]) -> tuple[str, str, int]:
    """Return the parameters of a method, a term of all of them, and how many must be passed by position."""
    instance, *rest = names
    only, both, optional, named, default = (rest[index::5] for index in range(5))
    star, double = optional.pop(), default.pop()
    parameters = [instance, *only, "/", *both, *(f"{name}={index + 2}.5" for index, name in enumerate(optional))]
    parameters += [f"*{star}", *named, *(f"{name}={index + 3}.25" for index, name in enumerate(default)), f"**{double}"]
    tensors = [*only, *both, *optional, *named, f"{star}[0]", f"{double}['{instance}']", f"{double}['{only[0]}']"]
    terms = [_lined_up(instance, tensors), *(f"{name} * {index + 1}" for index, name in enumerate(default))]
    return ", ".join(parameters), " + ".join(terms), len([*only, *both, *optional])


def every_name_as_a_parameter(run: Run) -> None:
    for number, names in enumerate(_draws(1)):
        parameters, terms, count = _parameters(names)
        text = f"def method({parameters}):\n    return {terms}\n"
        function = define(f"parameters{number}", text).method
        net = type("Named", (nn.Module,), {"method": function, "lined_up": staticmethod(torch.stack)})()
        cached = run.cache(net.method, dynamic=False)
        instance, *rest = names
        keywords: dict[str, Any] = {name: _tensor(100 + index) for index, name in enumerate(rest[3::5])}
        keywords |= {instance: _tensor(1), rest[0]: _tensor(2)}
        positional = [_tensor(index) for index in range(count + 1)]
        run.compare(f"{number}", cached, net.method, *positional, **keywords)
        run.compare(f"{number} again", cached, net.method, *positional, **keywords)


def every_name_as_attribute_global_closure_and_key(run: Run) -> None:
    of_module = set(dir(nn.Module()))
    for number, names in enumerate(_draws(2)):
        attributes, globals_, closures, keys, tensors, weights = (names[index::6] for index in range(6))
        attributes, tensors, weights = (
            [name for name in group if name not in of_module] for group in (attributes, tensors, weights)
        )
        globals_ = [
            name for name in globals_ if name not in ("__builtins__", "__name__", "__import__", "super", "make")
        ]
        instance, argument = closures.pop(), closures.pop()
        floats = [*(f"{instance}.{name}" for name in attributes), *globals_, *closures]
        total = " + ".join(f"{term} * {index + 1}" for index, term in enumerate(floats))
        given = [*(f"{instance}.{name}" for name in (*tensors, *weights)), *(f"{argument}['{name}']" for name in keys)]
        total += f" + {_lined_up(instance, given)}"
        text = "def make():\n"
        text += "".join(f"    {name} = {index}.125\n" for index, name in enumerate(closures))
        text += f"    def method({instance}, **{argument}):\n        return {total}\n    return method\n"
        values = {name: index + 0.25 for index, name in enumerate(globals_)}
        net: Any = type("Named", (nn.Module,), {"lined_up": staticmethod(torch.stack)})()
        for index, name in enumerate(attributes):
            setattr(net, name, index + 0.5)
        for index, name in enumerate(tensors):
            setattr(net, name, _tensor(index))
        for index, name in enumerate(weights):
            net.register_parameter(name, nn.Parameter(_tensor(index), requires_grad=False))
        method = types.MethodType(define(f"others{number}", text, **values).make(), net)
        cached = run.cache(method, dynamic=False)
        for start in (0, 50):
            keywords = {name: _tensor(start + index) for index, name in enumerate(keys)}
            run.compare(f"{number} from {start}", cached, method, **keywords)


class Examples(nn.Module):
    """Cases that a drawn name does not make."""

    def __init__(self) -> None:
        super().__init__()
        self.__hidden = 3.0
        self.__weight = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)

    def private(self, __x: Tensor, *, __scale: float = 2.0) -> Tensor:
        return __x * self.__hidden * __scale + self.__weight

    def spelled(self, x: Tensor, options: Any) -> Tensor:
        for name in _SPELLED:
            x = x * getattr(options, name) + getattr(self, name)
        return x

    def everything(*everything: Any, **more: Any) -> Any:
        return everything[1] * everything[0].__hidden + more["self"]

    def chosen(self, größe: Tensor, /, *, type: int = 1, **len: Tensor) -> Tensor:
        return größe * type + len["hasattr"]


def private_names(run: Run) -> None:
    net = Examples()
    cached = run.cache(net.private, dynamic=False)
    run.compare("private", cached, net.private, torch.ones(3))
    run.compare("private by name", cached, net.private, torch.ones(3), _Examples__scale=5.0)


def names_that_the_compiler_would_spell_otherwise(run: Run) -> None:
    net, options = Examples(), types.SimpleNamespace()
    for index, name in enumerate(_SPELLED):
        setattr(net, name, index + 0.5)
        setattr(options, name, index + 3.0)
    cached = run.cache(net.spelled, dynamic=False)
    run.compare("spelled", cached, net.spelled, torch.ones(3), options)


def an_instance_among_star_arguments(run: Run) -> None:
    net = Examples()
    cached = run.cache(net.everything, dynamic=False)
    run.compare("everything", cached, net.everything, torch.ones(3), self=torch.ones(3))


def gears_of_such_names(run: Run) -> None:
    net = Examples()
    cached = run.cache(net.chosen, gears={"größe": {0: [2, 4]}, "len['hasattr']": {0: [2, 4]}})
    for size in (2, 4):
        keywords: dict[str, Any] = {"hasattr": torch.ones(size, 3)}
        run.compare(f"chosen {size}", cached, net.chosen, torch.ones(size, 3), type=3, **keywords)


def attributes_called_like_methods_of_modules(run: Run) -> None:
    net: Any = type("Hiding", (nn.Module,), {"run": lambda self, x: self.linear(x) * self.buffers})()
    net.linear = nn.Linear(4, 4)
    for name in ("modules", "parameters", "buffers", "named_parameters", "children", "state_dict", "eval"):
        object.__setattr__(net, name, 2.5)
    cached = run.cache(net.run, gears={"x": {0: [2, 3]}})
    run.compare("hiding", cached, net.run, torch.randn(2, 4))
