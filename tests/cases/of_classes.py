"""What a class defines decides what Python does with its objects."""

import collections
import functools
import gc

import torch
from torch import nn

from tests.cases.case import Case, case


class Tool:
    pass


class Switch:
    pass


class Plain:
    def __init__(self, value=1):
        self.value = value


class Lister:
    def __getitem__(self, index):
        if index > 2:
            raise IndexError(index)
        return index


class Numbered:
    pass


class Base:
    factor = 2.0

    def scale(self, x):
        return x * 2


class Middle(Base):
    pass


class Nearest(Middle):
    pass


class Lookup:
    known = 1.0


class Meta(type):
    pass


class Made(metaclass=Meta):
    weight = 2.0


class Described:
    def __get__(self, instance, owner):
        return 2.0


class Holder:
    value = Described()


class Items(list):
    pass


class Table(dict):
    pass


class Text(str):
    pass


def having(object, **attributes):
    vars(object).update(attributes)
    return object


class Special(nn.Module):
    def forward(self, x):
        return x * 2


class Child(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return x * 2


def helper(x):
    return x


class Other:
    factor = 7.0


class Rebased(Base):
    pass


class Plain7:
    weight = 7.0


@case(tool=Tool, patched=(Tool, "__call__", lambda self: 1))
def a_call_method_appears(self, x):
    return x * 2 if callable(self.tool) else x * 3


@case(switch=Switch, patched=(Switch, "__bool__", lambda self: False))
def a_truth_appears(self, x):
    return x * 2 if self.switch else x * 3


@case(switch=Switch, patched=(Switch, "__bool__", lambda self: False))
def a_truth_in_a_branch_of_not(self, x):
    return x * 2 if not self.switch else x * 3


@case(first=Plain, second=Plain, patched=(Plain, "__eq__", lambda self, other: self.value == other.value))
def an_equality_appears(self, x):
    return x * 2 if self.first == self.second else x * 3


@case(
    items=lambda: [Plain(1), Plain(2)],
    wanted=lambda: Plain(2),
    patched=(Plain, "__eq__", lambda self, other: self.value == other.value),
)
def an_equality_in_a_list(self, x):
    return x * 2 if self.wanted in self.items else x * 3


@case(patched=(Plain, "__eq__", lambda self, other: True))
def an_equality_of_what_is_made(self, x):
    return x * 2 if Plain() == Plain() else x * 3


@case(lister=Lister, patched=(Lister, "__iter__", lambda self: iter([10, 20])))
def an_iterator_beside_items(self, x):
    for item in self.lister:
        x = x + item
    return x


@case(lister=Lister, patched=(Lister, "__contains__", lambda self, item: False))
def a_contains_beside_items(self, x):
    return x * 2 if 1 in self.lister else x * 3


@case(plain=Plain, patched=(Plain, "__getattr__", lambda self, name: 7.0))
def a_missing_attribute_is_made_by_getattr(self, x):
    return x * getattr(self.plain, "missing", 2.0)


@case(
    plain=lambda: Plain(2.0),
    patched=(
        Plain,
        "__getattribute__",
        lambda self, name: 7.0 if name == "value" else object.__getattribute__(self, name),
    ),
)
def an_attribute_is_read_by_getattribute(self, x):
    return x * self.plain.value


@case(
    patched=(Meta, "__getattribute__", lambda cls, name: 7.0 if name == "weight" else type.__getattribute__(cls, name))
)
def a_class_attribute_is_read_by_the_metaclass(self, x):
    return x * Made.weight


@case(patched=(Meta, "height", 7.0))
def a_metaclass_gets_an_attribute(self, x):
    return x * getattr(Made, "height", 2.0)


@case(patched=(Meta, "__bool__", lambda cls: False))
def a_metaclass_gets_a_truth(self, x):
    return x * 2 if Made else x * 3


@case(patched=(Meta, "__call__", lambda cls: Plain7()))
def a_metaclass_gets_a_call(self, x):
    return x * Made().weight


@case(
    holder=lambda: having(Holder(), value=3.0),
    patched=(Described, "__set__", lambda self, instance, value: None),
)
def a_descriptor_becomes_a_data_descriptor(self, x):
    return x * self.holder.value


@case(holder=Holder, patched=(Described, "__get__", lambda self, instance, owner: 7.0))
def a_descriptor_reads_another(self, x):
    return x * self.holder.value


@case(object=Nearest, patched=(Middle, "scale", lambda self, x: x * 7))
def a_nearer_base_gets_the_name(self, x):
    return self.object.scale(x)


@case(object=Nearest, patched=(Nearest, "factor", 7.0))
def the_class_itself_gets_the_constant(self, x):
    return x * self.object.factor


@case(patched=(Middle, "factor", 7.0))
def a_nearer_base_gets_the_constant(self, x):
    return x * Nearest.factor


@case(object=lambda: having(Nearest(), factor=3.0), patched=(Nearest, "factor", property(lambda self: 7.0)))
def a_property_hides_the_instance(self, x):
    return x * self.object.factor


@case(object=Nearest, change=lambda self, patch: patch(self.object, "factor", 7.0))
def an_instance_hides_the_class(self, x):
    return x * self.object.factor


@case(object=Nearest, change=lambda self, patch: patch(self.object, "scale", lambda x: x * 7))
def an_instance_hides_a_method(self, x):
    return self.object.scale(x)


@case(object=Lookup, change=lambda self, patch: patch(self.object, "unknown", 7.0))
def an_attribute_of_an_object_appears(self, x):
    return x * 2 if hasattr(self.object, "unknown") else x * 3


@case(object=Lookup, patched=(Lookup, "unknown", 7.0))
def an_attribute_of_an_objects_class_appears(self, x):
    return x * 2 if hasattr(self.object, "unknown") else x * 3


@case(patched=(Lookup, "unknown", 7.0))
def an_attribute_of_a_class_appears(self, x):
    return x * getattr(Lookup, "unknown", 2.0)


@case(object=Lookup, patched=(Lookup, "unknown", 7.0))
def an_attribute_appears_that_is_asked_for_before_it_fails(self, x):
    try:
        return x * self.object.unknown
    except AttributeError:
        return x * 2


@case(child=Child, patched=(Child, "gain", 7.0))
def an_attribute_of_a_child_appears(self, x):
    return self.child(x) * getattr(self.child, "gain", 1.0)


@case(change=lambda self, patch: patch(type(self), "gain", 7.0))
def an_attribute_of_the_module_appears(self, x):
    return x * getattr(self, "gain", 1.0)


@case(object=Lookup, kind=lambda: "wn", patched=(Lookup, "unknown", 7.0))
def an_attribute_of_a_computed_name_appears(self, x):
    return x * 2 if hasattr(self.object, "unkno" + self.kind) else x * 3


@case(child=Child, patched=(Child, "__call__", lambda self, x: x * 7))
def a_childs_hook_is_a_method(self, x):
    return self.child(x)


@case(child=Child, patched=(Child, "_call_impl", lambda self, x: x * 7))
def a_childs_call_implementation(self, x):
    return self.child(x)


@case(child=Child, patched=(Child, "__getattr__", lambda self, name: 7.0))
def a_childs_getattr(self, x):
    return x * 2 if hasattr(self.child, "unknown") else x * 3


@case(children_=lambda: nn.ModuleList([Special()]), patched=(nn.ModuleList, "__bool__", lambda self: False))
def a_module_list_has_a_truth(self, x):
    return x * 2 if self.children_ else x * 3


@case(child=Child, patched=(Child, "__bool__", lambda self: False))
def a_child_has_a_truth(self, x):
    return x * 2 if self.child else x * 3


@case(items=lambda: Items([1, 2]), patched=(Items, "__iter__", lambda self: iter([7])))
def a_list_subclass_iterates(self, x):
    for item in self.items:
        x = x * item
    return x


@case(table=lambda: Table(a=1), patched=(Table, "__missing__", lambda self, key: 7))
def a_dict_subclass_misses_keys(self, x):
    try:
        return x * self.table["b"]
    except KeyError:
        return x * 3


@case(table=lambda: Table(a=1), patched=(Table, "get", lambda self, key, default=None: 7))
def a_dict_subclass_gets_another_way(self, x):
    return x * self.table.get("a", 5)


@case(plain=Plain, table=lambda: {"seven": 7.0}, patched=(Plain, "__str__", lambda self: "seven"))
def a_format_appears(self, x):
    return x * self.table.get(f"{self.plain}", 2.0)


@case(plain=Plain, patched=(Plain, "__repr__", lambda self: "seven"))
def a_representation_appears(self, x):
    return x * len(repr(self.plain))


@case(plain=Plain, patched=(Plain, "__hash__", lambda self: 3))
def a_hash_appears(self, x):
    return x * (hash(self.plain) % 7)


@case(plain=Plain, patched=(Plain, "__index__", lambda self: 7))
def an_index_appears(self, x):
    try:
        return x * range(10)[self.plain]
    except TypeError:
        return x * 3


@case(plain=Plain, patched=(Plain, "__float__", lambda self: 7.0))
def a_float_appears(self, x):
    try:
        return x * float(self.plain)
    except TypeError:
        return x * 3


@case(plain=Plain, patched=(Plain, "__radd__", lambda self, other: 7.0))
def a_slot_of_a_reflected_operator(self, x):
    try:
        return x * (2 + self.plain)
    except TypeError:
        return x * 3


@case(object=Base, change=lambda self, patch: patch(self, "object", Nearest()))
def another_class_of_the_object(self, x):
    return self.object.scale(x) if type(self.object) is Base else x * 3


@case(table=lambda: collections.defaultdict(lambda: 2.0))
def an_unhashed_defaultdict(self, x):
    return x * self.table["a"]


@an_unhashed_defaultdict.changed
def _(self, patch):
    self.table.default_factory = lambda: 7.0


class Scaling(Case):
    def scaled(self, x, factor):
        return x * factor

    doubled = functools.partialmethod(scaled, factor=2)


@case(of=Scaling, patched=(Scaling, "doubled", functools.partialmethod(Scaling.scaled, factor=7)))
def a_partial_method(self, x):
    return self.doubled(x)


@case(object=Base, patched=(Base, "scale", staticmethod(lambda x: x * 7)))
def a_method_is_static(self, x):
    return self.object.scale(x)


@case()
def subclasses_are_counted(self, x):
    return x * (1 + len(Base.__subclasses__()))


@subclasses_are_counted.changed
def _(self, patch):
    self.another = type("Another", (Base,), {})

    def forget():
        self.another = None
        gc.collect()

    patch.callback(forget)


@case(patched=(helper, "gain", 7.0))
def an_attribute_of_a_function(self, x):
    return x * getattr(helper, "gain", 2.0)


@case(object=Rebased)
def the_bases_are_others(self, x):
    return x * self.object.factor


@the_bases_are_others.changed
def _(self, patch):
    before = Rebased.__bases__
    Rebased.__bases__ = (Other,)
    patch.callback(setattr, Rebased, "__bases__", before)


@case(object=Base)
def the_object_is_of_another_class_of_the_name(self, x):
    return x * self.object.factor if isinstance(self.object, Base) else x * 3


@the_object_is_of_another_class_of_the_name.changed
def _(self, patch):
    copy = type("Base", (), {"factor": 2.0, "__module__": Base.__module__})
    copy.__qualname__ = Base.__qualname__
    patch(self, "object", copy())


@case(patched=(Base, "unrelated", 1))
def a_tensor_is_unaffected(self, x):
    return torch.relu(x)
