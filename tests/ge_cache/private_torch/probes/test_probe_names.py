"""Functions that probes replace are there, and are left as they were."""

from __future__ import annotations

import inspect
from typing import Any

from gearcache.ge_cache.dependencies.autograd_reads import AutogradReads
from gearcache.ge_cache.dependencies.looked_up import Lookups
from gearcache.ge_cache.private_torch.probes import autograd as private_autograd
from gearcache.ge_cache.private_torch.probes import key_views as private_key_views
from gearcache.ge_cache.private_torch.probes import lookups as private_lookups
from gearcache.ge_cache.private_torch.renamed import RENAMED, name_here


def test_dynamo_s_dictionary_variables_are_watched_and_left_as_they_were() -> None:
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.user_defined import UserDefinedDictVariable

    before = dict(vars(ConstDictVariable)), dict(vars(UserDefinedDictVariable))
    named = {*private_lookups._HARMLESS, *private_lookups._PLAIN}
    since = {"_lookup_tp_table", "_maybe_call_special", "_maybe_lookup_method", "lookup_instance_dict"}
    since |= {"lookup_tp_getset_member", "lookup_tp_method"}  # torch 2.14
    latest = {"call_base_method", "inherits_base_slot", "lookup_slotdefs"}  # torch 2.15
    until = {"_get_dict_cls_from_user_cls", "is_base_vt_modified"}  # torch 2.13, torch 2.14
    known = {*dir(ConstDictVariable), *dir(UserDefinedDictVariable)}
    other = RENAMED | {new: old for old, new in RENAMED.items()}
    missing = {name for name in named if not {name, other.get(name, name)} & known}
    of_2_13 = since | latest | {"method_flags_type"}
    assert missing in (of_2_13, {"_get_dict_cls_from_user_cls"} | latest, until)
    lookups = Lookups()
    with private_lookups.watched_lookups(lookups):
        assert vars(ConstDictVariable) != before[0]
        assert vars(UserDefinedDictVariable) != before[1]
    assert (dict(vars(ConstDictVariable)), dict(vars(UserDefinedDictVariable))) == before


def test_dynamo_s_views_of_keys_are_watched_and_left_as_they_were() -> None:
    from torch._dynamo.variables.dicts import ConstDictVariable, DictKeysVariable, DictViewVariable

    before = dict(vars(ConstDictVariable)), dict(vars(DictKeysVariable))
    assert list(inspect.signature(DictViewVariable.__init__).parameters)[:2] == ["self", "dv_dict"]
    with private_key_views.single_keys():
        assert vars(ConstDictVariable) != before[0]
        assert isinstance(vars(DictKeysVariable)["dv_dict"], property)
    assert (dict(vars(ConstDictVariable)), dict(vars(DictKeysVariable))) == before


def test_what_a_trace_asks_about_autograd_is_told_and_the_hooks_are_undone() -> None:
    from torch._dynamo.variables.ctx_manager import GradModeVariable
    from torch._dynamo.variables.tensor import TensorVariable
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    places: list[tuple[Any, str]] = [
        (GradModeVariable, "create"),
        (TensorVariable, name_here(TensorVariable, "var_getattr")),
        (TensorVariable, "call_method"),
        (TorchInGraphFunctionVariable, "call_function"),
    ]
    before = [inspect.getattr_static(place, name) for place, name in places]
    reads = AutogradReads("method", with_grad=False)
    with private_autograd.watched_autograd(reads):
        changed = [inspect.getattr_static(place, name) for place, name in places]
    after = [inspect.getattr_static(place, name) for place, name in places]
    assert all(left is not right for left, right in zip(before, changed, strict=True))
    assert [getattr(item, "__func__", item) for item in before] == [getattr(item, "__func__", item) for item in after]
