"""What a class itself is asked: its fields, its operators, and what a descriptor reads of its owner."""

import dataclasses

from tests.cases.case import case


@dataclasses.dataclass
class Config:
    heads: int = 2
    layers: int = 3


FEWER = {"heads": Config.__dataclass_fields__["heads"]}


class Computed:
    """As `classproperty` is written."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner):
        return self.function(owner)


class Sized:
    heads = 2
    table = {"a": 2.0}
    held = ({"a": 2.0},)

    @Computed
    def width(cls):
        return cls.heads * 4

    @Computed
    def entry(cls):
        return cls.table["a"]

    @Computed
    def inner(cls):
        return cls.held[0]["a"]

    def __class_getitem__(cls, name):
        return cls.table[name]


class Registry(type):
    table = {"a": 2.0}

    def __getitem__(cls, name):
        return cls.table[name]

    def __add__(cls, number):
        return cls.table["a"] + number

    def __str__(cls):
        return f"{cls.table}"

    @property
    def first(cls):
        return cls.table["a"]


class Registered(metaclass=Registry):
    pass


class Truthful(type):
    def __bool__(cls):
        return cls.is_true


class Iterated(type):
    def __iter__(cls):
        return iter(cls.parts)


class Parts(metaclass=Iterated):
    parts = (1, 2)


class Held(metaclass=Truthful):
    is_true = True


@case(config=Config, patched=(Config, "__dataclass_fields__", FEWER))
def the_fields_of_a_dataclass(self, x):
    return x * sum(getattr(self.config, field.name) for field in dataclasses.fields(self.config))


@case(config=Config, patched=(Config, "__dataclass_fields__", FEWER))
def a_dataclass_as_a_dictionary(self, x):
    return x * len(dataclasses.asdict(self.config))


@case(refused=False, sized=Sized, patched=(Sized, "heads", 3))
def what_a_descriptor_reads_of_its_owner(self, x):
    return x * self.sized.width


@case(refused="it reads `table` of the class", sized=Sized)
def a_table_that_a_descriptor_reads_of_its_owner(self, x):
    return x * self.sized.entry


@case(refused="it reads `held` of the class", sized=Sized)
def a_table_in_a_tuple_that_a_descriptor_reads_of_its_owner(self, x):
    return x * self.sized.inner


@case(refused="`__class_getitem__` of `.*Sized` answers")
def an_item_of_a_class(self, x):
    return x * Sized["a"]


@case(refused="`__getitem__` of `.*Registry` answers")
def an_item_by_the_metaclass(self, x):
    return x * Registered["a"]


@case(refused="`__add__` of `.*Registry` answers")
def a_sum_by_the_metaclass(self, x):
    return x * (Registered + 1)


@case(refused="`__str__` of `.*Registry` answers")
def a_text_by_the_metaclass(self, x):
    return x * len(str(Registered))


@case(refused="an attribute of its metaclass")
def a_property_of_the_metaclass(self, x):
    return x * Registered.first


@case(refused="`__iter__` of `.*Iterated` answers")
def a_loop_by_the_metaclass(self, x):
    return x * sum(Parts)


@case(refused="`__bool__` of `.*Truthful` answers")
def a_truth_by_the_metaclass(self, x):
    return x * 2 if Held else x * 3
