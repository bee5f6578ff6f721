"""The runtime that every object of AOTInductor contains: compiled once for a host, and linked to every object.

Inductor writes it into the source of every graph, where it takes g++ three times as long as the graph's own code: the C
interface, and the templates behind the class of the graph. Here the source declares them as external.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from gearcache.ge_cache.inductor.interpreter_lock import INTERFACE, INTERFACE_END, with_lock_released
from gearcache.ge_cache.inductor.number_reads import with_numbers_read
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource, Make

logger = logging.getLogger("gearcache")

_BASE = "template class torch::aot_inductor::AOTInductorModelBase<torch::aot_inductor::AOTInductorModel>;\n"


#: Called with Inductor's own compiler, and the C++ of a graph; returns the path of an object.
Link = Callable[[Make, CppSource], str]


def make_linked(make: Make, written: CppSource) -> str:
    """Make an object that is linked to the runtime; where that fails, one with a runtime of its own."""
    written = with_numbers_read(with_lock_released(written))
    parted = without_runtime(written)
    if not parted.runtime:
        return make(written)
    try:
        return make(parted)
    except Exception as error:  # any error of compilers and linkers
        logger.debug("the graph gets a runtime of its own: %s", error)
        return make(written)


def without_runtime(written: CppSource) -> CppSource:
    """Return a source with its runtime split off; unchanged where it is not written as expected."""
    text = written.wrapper
    if text.count(INTERFACE) != 1 or text.count(INTERFACE_END) != 1 or written.runtime:
        return written
    head, _, remainder = text.partition(INTERFACE)
    interface, _, graph_code = remainder.partition(INTERFACE_END)
    includes = "".join(f"{line}\n" for line in interface.splitlines() if line.startswith("#include "))
    runtime = f"{head}{INTERFACE}{interface}{INTERFACE_END}{_BASE}"
    return replace(written, wrapper=f"{head}{includes}extern {_BASE}{graph_code}", runtime=runtime)
