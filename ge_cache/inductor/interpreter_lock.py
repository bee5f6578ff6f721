"""Release Python's interpreter lock around graphs that call operators outside their own code, as eager mode does.

AOTInductor's runner keeps the lock for a whole graph (torch 2.13, `aoti_runner/pybind.cpp`), while an operator may wait
for a thread that needs it. gloo's threads drop tensors that Python knows, and two ranks then wait for each other for
ever (seen with two `all_reduce` and one `all_gather`, one start in four). So the C interface of each object releases
the lock around the whole of such a graph: a thread that waits for its turn with a graph must not hold it either.
"""

from __future__ import annotations

import re
import sys

from msgspec.structs import replace

from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource

#: The lines around the C interface in Inductor's source.
INTERFACE = "// Definition of AOTI runtime interface functions\n"
INTERFACE_END = '} // extern "C"\n'
#: Indented by four blanks until torch 2.14, by two since then.
_RUN = re.compile(r"^( +)container->run\($", re.MULTILINE)
_COMMUNICATES = re.compile(r"\baoti_torch_\w*_c10d_functional_\w+\(")  # what a graph waits for is always among these
_CALLS_OUT = re.compile(rf"\baoti_torch_proxy_executor_call_function\(|{_COMMUNICATES.pattern}")

#: Only the objects of such graphs define `gearcache_calls_out`; Python's functions are absent in a C++ program.
_LOCK = """\
extern "C" {
extern __attribute__((weak, visibility("hidden"))) const char gearcache_calls_out;
__attribute__((weak)) int Py_IsInitialized();
__attribute__((weak)) int PyGILState_Check();
__attribute__((weak)) void* PyEval_SaveThread();
__attribute__((weak)) void PyEval_RestoreThread(void*);
}
namespace {
struct WithoutInterpreterLock {
  void* thread = nullptr;
  WithoutInterpreterLock() {
    if (&gearcache_calls_out && &Py_IsInitialized && &PyGILState_Check && &PyEval_SaveThread &&
        &PyEval_RestoreThread && Py_IsInitialized() && PyGILState_Check()) {
      thread = PyEval_SaveThread();
    }
  }
  ~WithoutInterpreterLock() {
    if (thread) {
      PyEval_RestoreThread(thread);
    }
  }
};
} // namespace
"""
_FLAG = """\
extern "C" {
extern __attribute__((visibility("hidden"))) const char gearcache_calls_out;
const char gearcache_calls_out = 1;
}
"""


def with_lock_released(written: CppSource) -> CppSource:
    """Return a source whose interface releases the lock around a graph that calls out.

    Raises `RuntimeError` for a graph that communicates where the interface is not written as expected.
    """
    if sys.platform != "linux":  # elsewhere a missing name makes the link fail
        return written
    text = written.wrapper
    begin, end = text.find(INTERFACE), text.find(INTERFACE_END)
    if text.count(INTERFACE) != 1 or end < begin or len(_RUN.findall(text[begin:end])) != 1:
        if _COMMUNICATES.search(text):
            raise RuntimeError(
                "the graph communicates, and AOTInductor's interface is not written as in torch 2.13 to 2.15: ranks "
                "that keep Python's lock while they wait for each other can wait for ever"
            )
        return written
    interface = _RUN.sub(r"\1WithoutInterpreterLock released;\n\g<0>", text[begin:end])
    interface = interface.replace(INTERFACE, f"{INTERFACE}{_LOCK}")
    flag = _FLAG if _CALLS_OUT.search(text) else ""
    behind = end + len(INTERFACE_END)
    return replace(written, wrapper=text[:begin] + interface + INTERFACE_END + flag + text[behind:])
