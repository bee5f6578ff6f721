"""Convert Dynamo's sources to access paths."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from gearcache.ge_cache.dependencies.looked_up import LookedUp
from gearcache.guards.access import Access
from gearcache.guards.evidence.names import a_type
from gearcache.guards.keys import NotKey, asked, packed, plain_key


class UnknownSourceClass(Exception):
    """A source class without an access path; carries its class name."""


class FrameNames(Struct, frozen=True):
    """The meaning of names in a captured frame: Dynamo's module aliases, other globals that it created, free variables.

    Every other global is the user's, whatever its name. `looked_up`: by source, dictionaries in which only single keys
    count (see `ge_cache.dependencies.looked_up`).
    """

    imports: Mapping[str, str]
    installed: Mapping[str, Any]
    free_variables: tuple[str, ...]
    looked_up: Mapping[Any, LookedUp] = field(default_factory=dict)
    #: By the id of a source: the source, which many others have as their base, and its path.
    found: dict[int, tuple[Any, Access]] = field(default_factory=dict)


#: Sources that only mark a kind of module or guard and add no step of their own.
_TRANSPARENT = {
    "NNModuleSource",
    "UnspecializedNNModuleSource",
    "UnspecializedBuiltinNNModuleSource",
    "FSDPNNModuleSource",
    "SkipGuardSource",
    "AttrProxySource",
    "OptimizerSource",
}
_ATTRIBUTES = {
    "AttrSource",
    "GenericAttrSource",
    "ParamBufferSource",
    "UnspecializedParamBufferSource",
}
_FIXED_ATTRIBUTES = {
    "CellContentsSource": "cell_contents",
    "ClosureSource": "__closure__",
    "CodeSource": "__code__",
    "TypeDictSource": "__dict__",
    "TypeMROSource": "__mro__",
    "NamedTupleFieldsSource": "_fields",
}
_ITEMS = {"GetItemSource", "ListGetItemSource", "DictGetItemSource", "DictSubclassGetItemSource"}


def access_of(source: Any, names: FrameNames) -> Access:
    """Return the access path of a Dynamo source; `UnknownSourceClass` names a class without one.

    A name that Dynamo put into the globals for one process is replaced by the object behind it, or refused.
    """
    if id(source) not in names.found:
        names.found[id(source)] = source, _access_of(source, names)
    return names.found[id(source)][1]


def _access_of(source: Any, names: FrameNames) -> Access:
    kind = type(source).__name__
    if kind == "LocalSource":
        name = source.local_name
        return Access(("closure" if name in names.free_variables else "argument", name))
    if kind == "GlobalSource":
        return _global(source.global_name, names)
    if kind == "ImportSource":
        return Access(("module", source.module_name))
    base = getattr(source, "base", None)
    if base is None:
        raise UnknownSourceClass(kind)
    path = access_of(base, names)
    if kind in _TRANSPARENT:
        return path
    if kind in _ATTRIBUTES:
        for member in source.member.split("."):
            path = path.then("attr", member)
        return path
    if kind in _FIXED_ATTRIBUTES:
        return path.then("attr", _FIXED_ATTRIBUTES[kind])
    if kind == "TypeSource":
        return path.then("type")
    if kind == "DefaultsSource":
        return path.then("attr", source.field).then("item", source.idx_key)
    if kind == "ConstDictKeySource":
        return path.then("nth_key", source.index)
    if kind in ("CallFunctionNoArgsSource", "WeakRefCallSource"):
        return path.then("call")
    if kind == "DataclassFieldsSource":
        return path.then("fields")
    if kind in _ITEMS:
        return _item(path, kind, source, names)
    raise UnknownSourceClass(kind)


def is_given(source: Any) -> bool:
    """Return whether a source leads to an object from before the call: a trace may also name objects that it made."""
    root = root_of(source)
    return root is not None and type(root).__name__ != "TempLocalSource"


def root_of(source: Any) -> Any:
    """Return the source at which the path of a source begins."""
    while (base := getattr(source, "base", None)) is not None:
        source = base
    return source


def is_of_namedtuple(source: Any, names: FrameNames) -> bool:
    """Return whether a source is in the globals that `collections.namedtuple` makes for a class's `__new__`.

    They have no module, so no path leads to them; the standard library fills them, and its version is in the key.
    """
    source = root_of(source)
    if type(source).__name__ != "GlobalSource" or source.global_name not in names.installed:
        return False
    scope = names.installed[source.global_name]
    namespace_keys = {"_tuple_new", "__builtins__", "__name__"}
    return type(scope) is dict and scope.keys() == namespace_keys and scope["_tuple_new"] is tuple.__new__


def is_builtins(name: str) -> bool:
    """Return whether a global of Dynamo's is the dictionary of builtins (`install_builtins_dict_in_fglobals`)."""
    return name.startswith("__builtins_dict__")


def _global(name: str, names: FrameNames) -> Access:
    if name in names.imports:
        return Access(("module", names.imports[name]))
    if name in names.installed:
        if is_builtins(name):
            return Access(("builtins", ""))
        value = names.installed[name]
        if not isinstance(value, types.ModuleType):
            if name.startswith("___unnamed_scope"):
                raise UnknownSourceClass(
                    "the globals of code that belongs to no module, such as what `torch.fx` and "
                    "`torch.export(...).module()` make: cache the method of the model that it was made from"
                )
            raise UnknownSourceClass(f"`{name}`, {a_type(value)} that Dynamo made for this process")
        return Access(("module", value.__name__))
    return Access(("global", name))


def _item(path: Access, kind: str, source: Any, names: FrameNames) -> Access:
    index = source.index
    if type(index).__name__ == "ConstDictKeySource":
        looked_up = names.looked_up.get(source.base)
        if looked_up is not None and type(looked_up.keys[index.index]) in (str, int):
            return path.then("dict_item", looked_up.keys[index.index])
        return path.then("nth_value", index.index)
    if getattr(source, "index_is_slice", False):
        raise UnknownSourceClass(f"{kind} with a slice")
    step = {"ListGetItemSource": "list_item", "DictSubclassGetItemSource": "dict_item"}.get(kind, "item")
    try:
        if type(asked(index)) in (str, int):
            return path.then(step, asked(index))
        key = packed(plain_key(index))
    except NotKey as error:
        raise UnknownSourceClass(
            f"the key {index!r} of a dictionary, of which no other process can make one: {error}"
        ) from None
    return path.then("dict_key_item" if step == "dict_item" else "key_item", key)
