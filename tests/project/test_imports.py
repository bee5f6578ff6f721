"""The layers of gearcache: who may import whom, and what an import may bring along."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.relaunch import run_python
from tests.support.source_tree import (
    LAYERS,
    ROOT,
    imported,
    layer_files,
    module_name,
    parse,
    private_torch_names,
    within,
)

COMPAT = (
    *sorted(path for path in layer_files("ge_cache") if path.parts[1] == "private_torch"),
    Path("guards/dispatch/tensors/native.py"),
    Path("guards/evidence/registry.py"),
    Path("guards/watch/watch.py"),
)
FINGERPRINT = Path("cache/keys/fingerprint.py")
ASCEND = Path("ge_cache/npu/ascend.py")

#: What a layer may import of gearcache. The root package, `api.py` above all, may import everything.
ALLOWED = {
    "cache": (
        "gearcache.cache",
        "gearcache.child_process",
        "gearcache.collection",
        "gearcache.errors",
        "gearcache.threads",
        "gearcache.torch_state",
    ),
    "guards": ("gearcache.guards", "gearcache.errors", "gearcache.interrupts"),
    "ge_cache": (
        "gearcache.ge_cache",
        "gearcache.guards",
        "gearcache.errors",
        "gearcache.interrupts",
        "gearcache.child_process",
        "gearcache.collection",
        "gearcache.import_hooks",
        "gearcache.threads",
        "gearcache.torch_state",
        "gearcache.cache.files.trust",
        "gearcache.cache.keys.module_tree",
    ),
}

#: Modules that manage files. `guards/` reads traced source files with `open`, and that is all.
DISK = ("diskcache", "fcntl", "filelock", "glob", "io", "mmap", "shutil", "sqlite3", "tempfile")

#: Methods of `pathlib.Path` that change the disk, whatever their arguments.
WRITING_METHODS = {"mkdir", "rmdir", "symlink_to", "touch", "unlink", "write_bytes", "write_text"}

FILES = [path for layer in LAYERS for path in layer_files(layer)]
ALL_FILES = FILES + layer_files("root")


@pytest.fixture(scope="module", autouse=True)
def trees_are_forgotten() -> Iterator[None]:
    """They are many objects, which the garbage collector would look at."""
    yield
    parse.cache_clear()
    imported.cache_clear()


def may_write(call: ast.Call) -> bool:
    """Whether a call may change the disk: `open` with a mode that is no literal may."""
    if isinstance(call.func, ast.Attribute):
        name, positional = call.func.attr, call.args[:1]  # path.open(mode)
    else:
        name, positional = getattr(call.func, "id", ""), call.args[1:2]  # open(path, mode)
    modes = [*positional, *(word.value for word in call.keywords if word.arg == "mode")]
    literal = all(isinstance(mode, ast.Constant) and not set(str(mode.value)) & set("wax+") for mode in modes)
    return name in WRITING_METHODS or (name == "open" and not literal)


def test_a_layer_imports_only_the_layers_below_it() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in FILES
        for line, name in imported(parse(path))
        if within(name, "gearcache") and not any(within(name, layer) for layer in ALLOWED[path.parts[0]])
    ]
    assert not wrong


def test_no_import_leads_back_to_its_module() -> None:
    """Imports in functions and those for types count."""
    modules = {module_name(path): path for path in ALL_FILES}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = {name if name in modules else name.rpartition(".")[0] for _, name in imported(parse(path))}
        graph[module] = names & modules.keys() - {module}
    graphlib.TopologicalSorter(graph).prepare()  # its `CycleError` names the modules


def test_imports_are_absolute_and_by_their_one_name() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in ALL_FILES
        for line, name in imported(parse(path))
        if name.startswith(".") or name.split(".")[0] in LAYERS
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("paths", "packages", "module"),
    [
        pytest.param(layer_files("cache"), ("torch",), FINGERPRINT, id="torch in the cache layer"),
        pytest.param(ALL_FILES, ("torch_npu", "torchair", "npugraph_ex"), ASCEND, id="packages of Ascend"),
    ],
)
def test_one_module_alone_imports(paths: list[Path], packages: tuple[str, ...], module: Path) -> None:
    importing = {
        path
        for path in paths
        for _, name in imported(parse(path))
        if any(within(name, package) for package in packages)
    }
    assert importing == {module}


def test_private_names_of_torch_appear_in_files_for_them_only() -> None:
    paths = [path for path in ALL_FILES if path not in COMPAT]
    names = [f"{path}:{line}: {name}" for path in paths for line, name in private_torch_names(parse(path))]
    assert not names


def test_guards_write_nothing_and_know_no_disk_library() -> None:
    for path in layer_files("guards"):
        tree = parse(path)
        modules = [f"{path}: {name}" for _, name in imported(tree) if any(within(name, disk) for disk in DISK)]
        written = [f"{path}:{node.lineno}" for node in ast.walk(tree) if isinstance(node, ast.Call) and may_write(node)]
        assert not modules
        assert not written


def loaded_after_import(*steps: tuple[list[str], tuple[str, ...]], has_torch: bool) -> list[list[str]]:
    """Import modules in a fresh interpreter, one step after the other; which suspects of a step does a module bring?

    A suspect counts against the first module that loads it. `has_torch`: the interpreter may have imported torch.
    """
    program = (
        "import importlib, json, sys\nfound = []\n"
        f"for modules, suspects in {steps!r}:\n"
        "    for name in modules:\n"
        "        importlib.import_module(name)\n"
        "        for suspect in suspects:\n"
        "            if sys.modules.pop(suspect, None) is not None: found.append((name, suspect))\n"
        "print(json.dumps(found))\n"
    )
    found: list[list[str]] = run_python(program, cwd=ROOT / "tests", has_torch=has_torch)
    return found


def test_gearcache_loads_no_layer_and_the_cache_layer_no_torch() -> None:
    libraries = ("torch", "torch_npu", "numpy", "click", "rich", "diskcache", "filelock", "msgspec")
    layers = tuple(f"gearcache.{layer}" for layer in LAYERS)
    modules = [module_name(path) for path in layer_files("cache") if path != FINGERPRINT]
    others = ("torch", "torch_npu", "gearcache.guards", "gearcache.ge_cache", "gearcache.api")
    recorder = ("gearcache.telemetry.start_trace",)  # of `GEARCACHE_TRACE`, which is not set
    steps = (["gearcache"], libraries + layers + recorder), (modules, others)
    assert loaded_after_import(*steps, has_torch=False) == []


#: What a trace or a turn alone imports: probes name classes of Dynamo.
OF_A_TRACE = (
    "gearcache.ge_cache.capture.recording",
    *(f"gearcache.ge_cache.private_torch.{name}" for name in ("corrections", "every_probe", "of_turns", "probe")),
)


def test_neither_guards_nor_backends_load_a_compiler_or_the_cache_before_they_compile() -> None:
    compilers = ("torch._dynamo", "torch._inductor", "sympy", "torch_npu", "gearcache.cache")
    guards = [module_name(path) for path in layer_files("guards")]
    backends = [module_name(path) for path in layer_files("ge_cache") if path != ASCEND]
    backends = [name for name in backends if not name.startswith(OF_A_TRACE)]
    steps = (guards, (*compilers, "gearcache.ge_cache")), (backends, (*compilers, "gearcache.api"))
    assert loaded_after_import(*steps, has_torch=True) == []
