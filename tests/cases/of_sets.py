"""The order of a set, and hashes: another hash seed is another order."""

import enum

from tests.cases.case import Case, case

NAMES = frozenset({"query", "key", "value", "output", "gate", "up", "down"})
WEIGHTS = {"query": 1, "key": 2, "value": 3, "output": 4, "gate": 5, "up": 6, "down": 7}


class Kinds:
    names = {"query", "key", "value", "output", "gate", "up", "down"}


class Color(enum.Enum):
    RED = 1
    GREEN = 2


def folded(x, names):
    for name in names:
        x = x * 2 + WEIGHTS[name]
    return x


class Ordered(Case):
    def __init__(self):
        super().__init__()
        self.names = {"query", "key", "value", "output", "gate", "up", "down"}
        self.frozen = frozenset(self.names)
        self.table = dict(WEIGHTS)


@case(of=Ordered)
def an_attribute_is_iterated(self, x):
    return folded(x, self.names)


@case(of=Ordered)
def a_frozen_attribute_is_iterated(self, x):
    return folded(x, self.frozen)


@case(of=Ordered)
def a_global_is_iterated(self, x):
    return folded(x, NAMES)


@case(of=Ordered)
def a_constant_of_a_class_is_iterated(self, x):
    return folded(x, Kinds.names)


@case(of=Ordered)
def a_literal_is_iterated(self, x):
    for name in {"query", "key", "value", "output", "gate", "up", "down"}:
        x = x * 2 + WEIGHTS[name]
    return x


@case(of=Ordered)
def a_list_of_a_set(self, x):
    return folded(x, list(self.names))


@case(of=Ordered)
def a_joined_set(self, x):
    return x * 2 if ",".join(self.names) < "key" else x * 3


@case(of=Ordered)
def an_unpacked_set(self, x):
    first, *_ = self.names
    return x * WEIGHTS[first]


@case(of=Ordered)
def next_of_a_set(self, x):
    return x * WEIGHTS[next(iter(self.names))]


@case(of=Ordered)
def a_mapped_set(self, x):
    for weight in map(WEIGHTS.get, self.names):
        x = x * 2 + weight
    return x


@case(of=Ordered)
def a_difference_is_iterated(self, x):
    return folded(x, self.names - {"key"})


@case(of=Ordered)
def a_views_difference_is_iterated(self, x):
    return folded(x, self.table.keys() - {"key"})


@case(of=Ordered)
def dict_from_keys(self, x):
    return folded(x, dict.fromkeys(self.names))


@case(of=Ordered)
def a_comprehension_over_a_set(self, x):
    return folded(x, [name for name in self.names if name != "key"])


@case(of=Ordered)
def max_with_a_key(self, x):
    return x * WEIGHTS[max(self.names, key=lambda name: len(name) > 3)]


@case(of=Ordered)
def sorted_with_a_key(self, x):
    return folded(x, sorted(self.names, key=len))


@case(of=Ordered)
def sorted_texts(self, x):
    return folded(x, sorted(self.names))


@case(of=Ordered)
def a_member_is_looked_up(self, x):
    return x * 2 if "key" in self.names and "absent" not in NAMES else x * 3


@case(of=Ordered)
def the_size_of_a_set(self, x):
    return x * len(self.names) * len(self.names & NAMES)


@case(of=Ordered)
def a_text_is_hashed(self, x):
    return x * (hash("query") % 1000)


@case(of=Ordered)
def bytes_are_hashed(self, x):
    return x * (hash(b"query") % 1000)


@case(of=Ordered)
def a_tuple_is_hashed(self, x):
    return x * (hash(("query", 1)) % 1000)


@case(of=Ordered)
def a_frozen_set_is_hashed(self, x):
    return x * (hash(self.frozen) % 1000)


@case(of=Ordered)
def an_enum_member_is_hashed(self, x):
    return x * (hash(Color.RED) % 1000)


@case(of=Ordered)
def a_number_is_hashed(self, x):
    return x * (hash(1.5) % 1000)


@case(of=Ordered, object=Kinds)
def an_object_is_hashed(self, x):
    return x * (hash(self.object) % 1000)


@case(of=Ordered, object=Kinds)
def an_id_of_an_object(self, x):
    return x * (id(self.object) // 16 % 1000)


@case(of=Ordered)
def an_id_of_a_class(self, x):
    return x * (id(Kinds) // 16 % 1000)


@case(of=Ordered, object=lambda: object.__new__(Kinds))
def a_representation_with_an_address(self, x):
    return x * sum(map(ord, repr(self.object)[-8:]))


@case(of=Ordered)
def a_set_as_text(self, x):
    return x * (str(self.names).index("key") + 1)


@case(of=Ordered)
def small_numbers_are_iterated(self, x):
    for number in {3, 1, 2}:
        x = x * 2 + number
    return x


@case(of=Ordered)
def numbers_of_a_list_are_iterated(self, x):
    for number in set([9, 1, 17]):
        x = x * 2 + number
    return x
