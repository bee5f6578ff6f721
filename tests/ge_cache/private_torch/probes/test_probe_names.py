"""Functions that probes replace are there, and are left as they were."""

from __future__ import annotations

import inspect
import threading
from types import SimpleNamespace
from typing import Any

from torch._dynamo.variables import builder
from torch._dynamo.variables.ctx_manager import GradModeVariable
from torch._dynamo.variables.dicts import ConstDictVariable, DictKeysVariable, DictViewVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._dynamo.variables.user_defined import UserDefinedDictVariable

from gearcache.ge_cache.capture.exchanged import entries_of
from gearcache.ge_cache.private_torch.every_probe import PROBES
from gearcache.ge_cache.private_torch.probe import Probes, listening
from gearcache.ge_cache.private_torch.probes import lookups as private_lookups
from gearcache.ge_cache.private_torch.renamed import RENAMED, name_here

_ABSENT = object()


def test_every_probe_is_put_in_place_and_undone() -> None:
    places = [(owner, name) for probes in PROBES for owner, name, _ in probes.replacements()]

    def entries() -> list[Any]:
        return [entries_of(owner).get(name, _ABSENT) for owner, name in places]

    before = entries()
    assert len(places) > 200
    named = [
        *((builder, f"is_from_{kind}_source") for kind in ("unspecialized_nn_module", "global", "nonlocal")),
        *((ConstDictVariable, "__contains__"), (UserDefinedDictVariable, "value"), (DictKeysVariable, "dv_dict")),
        *((TensorVariable, name_here(TensorVariable, "var_getattr")), (TensorVariable, "call_method")),
        *((TorchInGraphFunctionVariable, "call_function"), (GradModeVariable, "create")),
    ]
    assert [place for place in named if place not in places] == []
    for _ in range(2):  # what replaces a function is made once
        with listening(SimpleNamespace(), PROBES):
            assert not [place for place, old, new in zip(places, before, entries(), strict=True) if old is new]
        assert all(old is new for old, new in zip(before, entries(), strict=True))


class Asked:
    """Something to listen at."""

    size = 3

    def answer(self, number: int) -> int:
        return number


def test_probes_at_one_place_call_each_other_in_the_thread_that_traces() -> None:
    first, second = Probes(), Probes()
    told: list[Any] = []

    @first.at(Asked, "answer")
    def doubled(trace: Any, original: Any, self: Any, number: int) -> Any:
        return original(self, number) * 2

    @second.at(Asked, "answer")
    def increased(trace: Any, original: Any, self: Any, number: int) -> Any:
        trace.append(number)
        return original(self, number) + 1

    @second.at_field(Asked, "size")
    def read(trace: Any, self: Any) -> None:
        trace.append("size")

    asked = Asked()
    asked.size = 4
    elsewhere: list[int] = []
    for log in (told, []):
        with listening(log, (first, second)):
            assert (asked.answer(3), asked.size) == (7, 4)
            thread = threading.Thread(target=lambda: elsewhere.extend((asked.answer(3), asked.size)))
            thread.start()
            thread.join()
        assert (asked.answer(3), asked.size, log) == (3, 4, [3, "size"])
    assert elsewhere == [3, 4, 3, 4]


def test_a_function_that_others_replaced_meanwhile_is_the_one_that_a_probe_calls(monkeypatch: Any) -> None:
    probes = Probes()

    @probes.at(Asked, "answer")
    def doubled(trace: Any, original: Any, self: Any, number: int) -> Any:
        return original(self, number) * 2

    for add in (0, 1, 2):
        monkeypatch.setattr(Asked, "answer", lambda self, number, add=add: number + add)
        with listening(None, (probes,)):
            assert Asked().answer(3) == 2 * (3 + add)


def test_the_methods_of_dynamo_s_dictionary_variables_are_known() -> None:
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


def test_views_of_keys_keep_their_dictionary_in_the_field_that_is_watched() -> None:
    assert list(inspect.signature(DictViewVariable.__init__).parameters)[:2] == ["self", "dv_dict"]
