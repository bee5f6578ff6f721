"""Special names that the interpreter or torch looks up on classes, although no code mentions them.

Other names of this form are notes that libraries store on a class, some only after a first use (`copyreg` adds
`__slotnames__` when an object is copied). They count only where traced code mentions them, as all other names do.
"""

from __future__ import annotations

_OPERATORS = "add sub mul truediv floordiv mod divmod pow lshift rshift and or xor matmul".split()
_PROTOCOLS = (
    # Attributes, descriptors, calls.
    "__getattr__ __getattribute__ __setattr__ __delattr__ __get__ __set__ __delete__ __call__ __slots__ __class__ "
    # Truth, comparison, numbers, texts.
    "__bool__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __abs__ __neg__ __pos__ __invert__ __int__ __float__ "
    "__complex__ __index__ __round__ __trunc__ __floor__ __ceil__ __str__ __repr__ __format__ __bytes__ __fspath__ "
    # Containers and iteration.
    "__len__ __length_hint__ __getitem__ __setitem__ __delitem__ __missing__ __contains__ __iter__ __next__ "
    "__reversed__ __match_args__ "
    # Memory (Python 3.12).
    "__buffer__ __release_buffer__ "
    # Contexts, asynchronous ones too.
    "__enter__ __exit__ __aenter__ __aexit__ __await__ __aiter__ __anext__ "
    # Tests of types, and torch's own protocols.
    "__instancecheck__ __subclasscheck__ __torch_function__ __torch_dispatch__ __array__ __array_priority__"
)
#: Names that the interpreter and torch look up on the classes of objects they see.
MET = frozenset({*_PROTOCOLS.split()} | {f"__{kind}{operator}__" for kind in ("", "r", "i") for operator in _OPERATORS})
#: Names that count as well where the method makes an object of the class.
MADE = frozenset(
    {
        "__class_getitem__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__del__",
        "__init__",
        "__new__",
        "__post_init__",
    }
)
#: Names that the interpreter adds to a class at their first use.
ADDED_LATER = frozenset({"__annotations__", "__slotnames__"})
