"""Numbers of a call are read from the memory of their tensors, where Inductor calls an operator for each (0.25 µs)."""

from __future__ import annotations

import re

from msgspec.structs import replace

from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource

# What torch 2.13 and 2.14 write for an input that is an int; in an object for the CPU, its tensor has memory there.
_OPERATOR = re.compile(r"AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_item_int64\((inputs\[\d+\]), &(\w+)\)\);")
_READ = """\
{
        void* number = nullptr;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(\\1, &number));
        \\2 = *static_cast<const int64_t*>(number);
    }"""


def with_numbers_read(written: CppSource) -> CppSource:
    """Return a source that reads its numbers itself; the same where it has none or they are written otherwise."""
    return replace(written, wrapper=_OPERATOR.sub(_READ, written.wrapper))
