"""Private names of Inductor by which its C++ becomes a shared object. Each has a test."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct

from gearcache.ge_cache.capture.exchanged import exchanged
from gearcache.ge_cache.inductor.targets import cpu_flags

Make = Callable[["CppSource"], str]


class CppSource(Struct, frozen=True):
    """The C++ of one graph; `runtime`, which may be empty, is compiled once for all graphs and linked to each."""

    wrapper: str
    kernels: str
    runtime: str = ""


class Lowered(Struct, frozen=True):
    """Inductor's output for a graph, before any compiler runs."""

    written: CppSource
    #: Whether it calls operators without a C interface.
    calls_back: bool
    #: Strides of each output; None where they are not ints.
    strides: list[tuple[int, ...] | None]
    #: The places of outputs that are inputs.
    returned_inputs: list[int]


#: Headers that precede the compiler's own, for all but a runtime.
_HEADERS = f"isystem{Path(__file__).parents[2] / 'inductor' / 'include'}"

#: Called with Inductor's own compiler, and its output for a graph; returns the path of an object.
ObjectMaker = Callable[[Make, Lowered], str]


@contextlib.contextmanager
def objects_by(maker: ObjectMaker, linker_flags: Sequence[str], folder: Path) -> Iterator[None]:
    """Let a function replace the compilation of the C++ that Inductor writes.

    Each link gets some flags, without their leading dash, for which Inductor has no setting. Runtimes are stored in a
    folder.
    """
    from torch._inductor import codecache
    from torch._inductor import cpp_builder as builder_module

    owner: Any = codecache.AotCodeCompiler
    builders: Any = builder_module
    original, original_flags = owner.__dict__["compile"], builders._get_optimization_cflags
    flags = [*linker_flags]
    headers: list[str] = []

    def compile_written(graph: Any, wrapper: str, kernels: str, extern: str | None, **keywords: Any) -> Any:
        def make(written: CppSource) -> Any:
            headers[:] = [shlex.quote(_HEADERS)] if written.runtime else []
            with _linked_to(written.runtime, folder, flags):
                return original.__func__(owner, graph, written.wrapper, written.kernels, extern, **keywords)

        strides = [_strides_of(output) for output in graph.graph_outputs]
        returned = [place for place, output in enumerate(graph.graph_outputs) if _name(output) in graph.graph_inputs]
        return maker(make, Lowered(CppSource(wrapper, kernels), bool(extern), strides, returned))

    def extended(*arguments: Any, **keywords: Any) -> tuple[list[str], list[str]]:
        compiler_flags, link_flags = original_flags(*arguments, **keywords)
        return [*compiler_flags, *headers], [*link_flags, *flags]

    with exchanged(
        [(owner, "compile", staticmethod(compile_written)), (builders, "_get_optimization_cflags", extended)]
    ):
        yield


@contextlib.contextmanager
def _linked_to(runtime: str, folder: Path, flags: list[str]) -> Iterator[None]:
    """Compile a runtime, where it is missing, with the command of the wrapper, and link it to the object."""
    from torch._inductor import cpp_builder

    builder: Any = cpp_builder.CppBuilder
    original = builder.build
    added_flags: list[str] = []

    def build(self: Any) -> None:
        command = _words(self)
        if _source(command) is not None:
            path = _runtime_object(command, self.get_target_file_path(), runtime, folder)
            added_flags.append(shlex.quote(f"Wl,{path}"))
            flags.extend(added_flags)
        original(self)

    with exchanged([(builder, "build", build)] if runtime else []):
        try:
            yield
        finally:
            for flag in added_flags:
                flags.remove(flag)


@contextlib.contextmanager
def headers_meanwhile(are_complete: Callable[[], None]) -> Iterator[None]:
    """Compile precompiled headers, which takes g++ 4 s each, beside one another and beside what does not include them.

    Inductor compiles each of them where its code first asks for it. Here that begins there, and the first compile of a
    source waits for all that have begun, and calls `are_complete`.
    """
    from torch._inductor import codecache, cpp_builder

    owner: Any = codecache
    builder: Any = cpp_builder.CppBuilder
    precompile, compile_locked, build_now = owner._precompile_header, owner._worker_compile_cpp, builder.build
    thread = threading.get_ident()
    begun: list[Future[None]] = []
    tell = [are_complete]

    def begin(lock_path: str, builders: Sequence[Any]) -> None:
        begun.append(pool.submit(compile_locked, lock_path, builders))

    def precompile_meanwhile(*arguments: Any, **keywords: Any) -> Any:
        with exchanged([(owner, "_worker_compile_cpp", begin)]):
            return precompile(*arguments, **keywords)

    def build(self: Any) -> None:
        # A header that is built, or preprocessed for its digest, is no source.
        if threading.get_ident() == thread and any(name.endswith(".wrapper.cpp") for name in _words(self)):
            headers, begun[:] = [*begun], []
            for header in headers:
                header.result()
            while tell:
                tell.pop()()
        build_now(self)

    replaced = [(owner, "_precompile_header", precompile_meanwhile), (builder, "build", build)]
    with ThreadPoolExecutor() as pool, exchanged(replaced):
        yield


def _words(builder: Any) -> list[str]:
    """Return the words of a compiler's command."""
    return shlex.split(builder.get_command_line())


def _source(command: list[str]) -> str | None:
    """Return the wrapper file that a command compiles without linking."""
    return next((word for word in command if word.endswith(".wrapper.cpp")), None)


def _runtime_object(command: list[str], target: str, source: str, folder: Path) -> str:
    """Return the object of a runtime, compiled with the command of the wrapper and the compiler's headers."""
    from torch._inductor import cpp_builder

    wrapper_source = _source(command)
    if "-include" in command:  # headers compiled together with ours
        position = command.index("-include")
        del command[position : position + 2]
    command = [word for word in command if word != f"-{_HEADERS}"]
    normalised = [
        {wrapper_source: "SOURCE", target: "TARGET"}.get(word, word.replace(str(folder), "FOLDER")) for word in command
    ]
    facts = [
        torch.__version__,
        str(torch.version.git_version),
        cpp_builder.get_compiler_version_info(command[0]),
        source,
        *normalised,
    ]
    if "-march=native" in normalised:  # several hosts may share the folder
        facts += cpu_flags()
    path = folder / f"gearcache-{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()}.o"
    if "," in str(path):
        raise ValueError(f"the linker cannot be given {path}: its name has a comma")
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        object_path, text = path.with_suffix(f".{os.getpid()}"), path.with_suffix(f".{os.getpid()}.cpp")
        try:
            text.write_text(source)
            runtime_command = [
                {wrapper_source: str(text), target: str(object_path)}.get(word, word) for word in command
            ]
            cpp_builder.run_compile_cmd(shlex.join(runtime_command), cwd=str(folder))
            object_path.replace(path)
        finally:
            object_path.unlink(missing_ok=True)
            text.unlink(missing_ok=True)
    return str(path)


def _name(output: Any) -> str | None:
    """Return the name of the buffer of an output; None if it is a number."""
    try:
        return str(output.get_name())
    except (AttributeError, NotImplementedError):
        return None


def _strides_of(output: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(stride) for stride in output.get_stride())
    except (AttributeError, NotImplementedError, TypeError):
        return None
