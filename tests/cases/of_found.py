"""Look-ups that found nothing where a trace first looked, and containers that are equal but not to a trace."""

import collections
import contextlib
import enum
import sys
import types

import torch
from torch import nn

from tests.cases.case import case


@case(table=lambda: {"a": 1.0}, change=lambda self, patch: patch.item(self.table, "b", 2.0))
def a_key_that_is_absent(self, x):
    try:
        return x * self.table["b"]
    except KeyError:
        return x * 3


@case(of=a_key_that_is_absent)
def a_key_that_is_absent_is_suppressed(self, x):
    factor = 3.0
    with contextlib.suppress(KeyError):
        factor = self.table["b"]
    return x * factor


@case(
    table=lambda: collections.ChainMap({}, {"b": 2.0}),
    change=lambda self, patch: patch.item(self.table.maps[0], "b", 7.0),
)
def a_key_of_a_chain(self, x):
    return x * self.table["b"]


class Registry:
    def __init__(self):
        self.table = {}

    def look_up(self, key):
        try:
            return self.table[key]
        except KeyError:
            return None


REGISTRY = Registry()


@case(change=lambda self, patch: patch.item(REGISTRY.table, "activation", torch.sin))
def a_key_of_a_registry(self, x):
    activation = REGISTRY.look_up("activation")
    return x * 1 if activation is None else activation(x)


class Holder:
    pass


@case(holder=Holder, change=lambda self, patch: patch(self.holder, "b", 2.0))
def a_key_of_an_objects_dictionary(self, x):
    try:
        return x * self.holder.__dict__["b"]
    except KeyError:
        return x * 3


@case(of=a_key_of_an_objects_dictionary)
def whether_an_objects_dictionary_has_a_key(self, x):
    return x * (2.0 if "b" in self.holder.__dict__ else 3.0)


@case(of=a_key_of_an_objects_dictionary)
def a_key_of_an_objects_dictionary_by_default(self, x):
    return x * vars(self.holder).get("b", 3.0)


@case(of=a_key_of_an_objects_dictionary, holder=lambda: types.SimpleNamespace(a=3.0))
def all_keys_of_an_objects_dictionary(self, x):
    return x * sum(vars(self.holder).values())


@case(of=all_keys_of_an_objects_dictionary)
def the_length_of_an_objects_dictionary(self, x):
    return x * len(self.holder.__dict__)


class Equal:
    def __eq__(self, other):
        return other == 1

    __hash__ = None


@case(holder=Holder, change=lambda self, patch: patch(self, "holder", Equal()))
def a_constant_among_objects(self, x):
    return x * (2.0 if 1 in [self.holder] else 3.0)


@case(
    table=lambda: nn.Buffer(torch.ones(3, 4)),
    change=lambda self, patch: patch.item(self._buffers, "table", torch.ones(2, 4)),
)
def a_buffer_of_which_the_size_is_read(self, x):
    return x * self.table.shape[0]


@case(
    of=a_buffer_of_which_the_size_is_read,
    change=lambda self, patch: patch.item(self._buffers, "table", torch.ones(3, 8)[:, ::2]),
)
def a_buffer_of_which_the_strides_are_read(self, x):
    return x * (2.0 if self.table.is_contiguous() else 3.0)


@case(of=a_buffer_of_which_the_size_is_read)
def a_buffer_of_which_the_data_is_exchanged(self, x):
    return x * self.table.shape[0]


@a_buffer_of_which_the_data_is_exchanged.changed
def _(self, patch):
    before = self.table.data
    self.table.data = torch.ones(2, 4)
    patch.callback(setattr, self.table, "data", before)


@case(step=lambda: nn.Parameter(torch.zeros(1), requires_grad=False))
def a_written_parameter_that_is_none_any_more(self, x):
    self.step.detach().mul_(1)
    return x * (self.step + 2)


@a_written_parameter_that_is_none_any_more.changed
def _(self, patch):
    before = self._parameters.pop("step")
    patch.callback(setattr, self, "step", before)
    patch.callback(delattr, self, "step")
    self.step = torch.ones(1)


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


@case(kind=lambda: Kind.FIRST, change=lambda self, patch: patch(self, "kind", Kind.SECOND))
def an_enum_by_identity(self, x):
    return x * 2 if self.kind is Kind.FIRST else x * 3


@case(table=dict, change=lambda self, patch: patch.item(self.table, "a", 1.0))
def whether_a_dictionary_is_empty(self, x):
    is_empty = not self.table
    return x * (2 if is_empty else 3)


@case(of=whether_a_dictionary_is_empty, table=collections.OrderedDict)
def whether_an_ordered_dictionary_is_empty(self, x):
    return x * (2 if self.table else 3)


@case(of=whether_a_dictionary_is_empty)
def keys_unpacked_into_a_list(self, x):
    return x * len([*self.table])


@case(of=whether_a_dictionary_is_empty)
def the_text_of_a_dictionary(self, x):
    return x * len(f"{self.table}")


@case(of=whether_a_dictionary_is_empty, table=lambda: collections.ChainMap({}))
def whether_a_chain_is_empty(self, x):
    return x * (2 if self.table else 3)


class AnObjectWithItsOwnText:
    def __init__(self):
        self.width = 3

    def __repr__(self):
        return "w" * self.width


@case(object=AnObjectWithItsOwnText, change=lambda self, patch: patch(self.object, "width", 5))
def the_text_of_an_object(self, x):
    return x * len(str(self.object))


@case(
    parts=lambda: nn.ModuleDict({"a": nn.Tanh()}),
    change=lambda self, patch: patch.item(self.parts._modules, "b", nn.ReLU()),
)
def a_module_that_is_absent(self, x):
    try:
        return self.parts["b"](-x)
    except KeyError:
        return x * 3


class Made:
    def __getattr__(self, name):
        return 2.0


@case(made=Made, change=lambda self, patch: patch(self.made, "scale", 3.0))
def an_attribute_that_its_class_makes(self, x):
    return x * self.made.scale


@case(made=Made, patched=(Made, "scale", 4.0))
def an_attribute_of_a_class_that_makes_it(self, x):
    return x * self.made.scale


class Inner(nn.Module):
    scale = 2.0

    def forward(self, x):
        return x + 1


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) * self.scale


@case(wrapper=Wrapper, change=lambda self, patch: patch(self.wrapper, "scale", 5.0))
def an_attribute_of_a_wrapped_module(self, x):
    return self.wrapper(x)


class Meta(type):
    factor = 2.0


class WithMeta(metaclass=Meta):
    pass


@case(patched=(Meta, "factor", 3.0))
def an_attribute_of_a_metaclass(self, x):
    return x * WithMeta.factor


@case(table=lambda: collections.OrderedDict(a=1.0, b=2.0))
def the_order_of_a_dictionary(self, x):
    for value in self.table.values():
        x = x * 2 + value
    return x


@the_order_of_a_dictionary.changed
def _(self, patch):
    self.table.move_to_end("a")
    patch.callback(self.table.move_to_end, "b")


@case(queue=lambda: collections.deque([0.0]))
def a_queue_of_zeros(self, x):
    return torch.atan2(x.abs() * self.queue[0], torch.full_like(x, -1.0))


@a_queue_of_zeros.changed
def _(self, patch):
    self.queue[0] = -0.0
    patch.callback(self.queue.__setitem__, 0, 0.0)


class AlwaysEqual:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, AlwaysEqual)


@case(queue=lambda: collections.deque([AlwaysEqual(1.0)]))
def a_queue_of_equal_objects(self, x):
    return x * self.queue[0].value


@a_queue_of_equal_objects.changed
def _(self, patch):
    before = self.queue[0]
    self.queue[0] = AlwaysEqual(5.0)
    patch.callback(self.queue.__setitem__, 0, before)


@case(members=lambda: {1})
def a_set_of_an_equal_number(self, x):
    for member in self.members:
        x = x.long() * member
    return x


@a_set_of_an_equal_number.changed
def _(self, patch):
    self.members.clear()
    self.members.add(1.0)
    patch.callback(self.members.add, 1)
    patch.callback(self.members.clear)


sys.modules["process_helper"] = types.SimpleNamespace(FACTOR=2.0)


@case(change=lambda self, patch: patch.item(sys.modules, "process_helper", types.SimpleNamespace(FACTOR=7.0)))
def a_module_imported_inside(self, x):
    import process_helper

    return x * process_helper.FACTOR


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self):
        self.first = 2.0


@case(slotted=Slotted)
def a_slot_that_is_not_set(self, x):
    return x * self.slotted.first * getattr(self.slotted, "second", 3.0)


@a_slot_that_is_not_set.changed
def _(self, patch):
    self.slotted.second = 4.0
    patch.callback(delattr, self.slotted, "second")


@case(change=lambda self, patch: patch(type(self).run, "__code__", (lambda self, x: x * 5).__code__))
def the_code_of_the_method(self, x):
    return x * 2
