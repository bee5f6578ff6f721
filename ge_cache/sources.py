"""Dynamo's sources as access paths."""

from __future__ import annotations

from typing import Any

from gearcache.guards.access import Access
from gearcache.guards.constants import to_plain


class UnknownSource(Exception):
    """A source class without an access path; carries its class name."""


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


def access_of(source: Any, imports: dict[str, str], free_variables: tuple[str, ...]) -> Access:
    """Return the access path of a Dynamo source; `UnknownSource` names a class without one.

    `imports` maps the global aliases that Dynamo made to module names; `free_variables` are the method's.
    """
    kind = type(source).__name__
    if kind == "LocalSource":
        name = source.local_name
        return Access(("closure" if name in free_variables else "argument", name))
    if kind == "GlobalSource":
        return _global(source.global_name, imports)
    if kind == "ImportSource":
        return Access(("module", source.module_name))
    base = getattr(source, "base", None)
    if base is None:
        raise UnknownSource(kind)
    path = access_of(base, imports, free_variables)
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
        return _item(path, kind, source)
    raise UnknownSource(kind)


def _global(name: str, imports: dict[str, str]) -> Access:
    if name in imports:
        return Access(("module", imports[name]))
    if name.startswith("__builtins_dict__"):
        return Access(("builtins", ""))
    return Access(("global", name))


def _item(path: Access, kind: str, source: Any) -> Access:
    index = source.index
    if type(index).__name__ == "ConstDictKeySource":
        return path.then("nth_value", index.index)
    if getattr(source, "index_is_slice", False):
        raise UnknownSource(f"{kind} with a slice")
    if to_plain(index) != index:  # only None, bool, int, str, bytes stand for themselves in a manifest
        raise UnknownSource(f"{kind} with a key of type {type(index).__name__}")
    step = {"ListGetItemSource": "list_item", "DictSubclassGetItemSource": "dict_item"}.get(kind, "item")
    return path.then(step, index)
