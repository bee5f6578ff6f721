"""Constructs that Dynamo gets wrong by itself: each gives what Python gives, or is refused by name."""

import collections
import copy
import ctypes
import dataclasses
import datetime
import decimal
import itertools
import sys
import weakref

import torch
import torch.utils.checkpoint

from tests.cases.case import Case, texts


class Ordered(collections.OrderedDict):
    pass


class Table(dict):
    pass


class Keyed(dict):
    def keys(self):
        return ["a"]


class Renamed(Keyed):
    def __iter__(self):
        return iter(["other"])

    def __getitem__(self, key):
        return 5


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    number: int = 3


class Tag:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Tag({self.value})"


class Released:
    def __init__(self, pool):
        self.pool = pool

    def __del__(self):
        self.pool.append(1)


class Point(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int),)


def inner():
    yield 1
    return 5


def outer():
    found = yield from inner()
    nothing = yield from [2]
    yield found, nothing


TARGET = Tag(2.0)
PROXY, POINT = weakref.proxy(TARGET), Point(3)


LIMIT = decimal.Decimal(2)
DAY = datetime.date(2026, 1, 1)
DAYS = {datetime.date(2026, 1, 1): 2.0}


class Net(Case):
    def __init__(self):
        super().__init__()
        self.numbers, self.plain = [3, 1, 2], {"a": 1}
        self.bounded = collections.deque([1, 2], maxlen=3)
        self.ordered = collections.OrderedDict(a=1, b=[2], c=3)
        self.keyed, self.renamed, self.table = Keyed(a=1, b=2), Renamed(a=1), Table(a=1, b=2)
        self.pool, self.count = [], 0
        self.linear = torch.nn.Linear(4, 4)


#: Served as Python runs them.
SERVED = texts(
    Net,
    {
        "sizes after a transposition in place": """
        y = x * 2
        y.transpose_(0, 1)
        return torch.eye(y.shape[-1]), y.shape, y.stride(), y.is_contiguous(), y
        """,
        "keywords of any name": """
        names = dict(original=1, trace=2, self=3, tx=4, args=5, user_cls=6)
        return x * sum(names.values()), "{original}, {trace}, {text}".format(original=1, trace=2, text=3)
        """,
        "any leaves the rest": "rest = iter([1, 2, 3])\nreturn x * 1, any(rest), list(rest)",
        "in uses up": "rest = iter([1, 2, 3])\nreturn x * 1, 2 in rest, list(rest)",
        "in of a range": "return x * 1, 2 in range(4), 2.5 in range(4), 2j in range(4), None in range(2)",
        "None and texts among tensors": "return x * 1, None in (x, x + 1), 'a' in [x, 'a'], b'a' not in [x[0, 0]]",
        "a table with a default": """
        found = collections.defaultdict(list)
        for name in ("a", "b", "a"):
            found[name].append(x + 1)
        return found
        """,
        "a copy of a new object's attributes": "return dict(vars(Output(x + 1))), {**vars(Tag(4))}",
    },
)
#: What Dynamo of torch 2.13 cannot trace in the byte code of Python 3.10.
YIELDING = texts(
    Net,
    {
        "yield from gives what the generator returned": "return x * 1, list(outer())",
    },
    refused="Dynamo could not form one graph" if sys.version_info < (3, 11) else False,
)
#: Containers of users' classes: which of these are served depends on the release.
EITHER = texts(
    Net,
    {
        "a dictionary's class without own keys": "return x * 1, dict(self.table), {} | self.table, self.table.copy()",
        "items and attributes written": 'self.table["n"] = 3\nself.table.extra = 4\nreturn x * len(self.table)',
    },
    refused=None,
)
HASH = r"it calls `hash\(\)`, whose result may differ between processes: use the value itself as a key"
OPEN_LENGTH, OPEN_TEXT = "the length of a `str`", "a text of a tensor among keys"
LEAVES = "an iterator leaves it"
OWN_KEYS = "a dictionary whose class has its own `__iter__` or `keys`"
DECIDES = "the values of a tensor decide what it does"
#: Refused, with what the refusal says.
REFUSED = texts(
    Net,
    {
        "the length of a text of a tensor": ('return x * len(f"{x}")', OPEN_LENGTH),
        "a text of a tensor is looked for": ('return x * 1, f"{x}" in {str(1): 2}, {}.get(f"{x}")', OPEN_TEXT),
        "a text of a tensor is in a set": ('return x * 1, len({f"{x}", f"{x * 1}"})', OPEN_TEXT),
        "decimals are compared": ("return x * 2 if LIMIT > 1 else x * 3", "compares a `Decimal` and a `int`"),
        "a date is looked for": ("return x * 2 if DAY in DAYS else x * 3", "by the `__eq__` of `date`"),
        "a gradient": ("return torch.func.grad(lambda row: row.sum())(x)", "it goes through `torch.func.grad`"),
        "a bounded deque drops": (
            "self.bounded.append(x)\nself.bounded.append(x + 1)\nreturn sum(self.bounded)",
            "a deque with a `maxlen`",
        ),
        "move_to_end": ('self.ordered.move_to_end("a")\nreturn x * 1, list(self.ordered)', "it calls `move_to_end`"),
        "keys of a user's dictionary": ("return x * 1, collections.OrderedDict(self.keyed)", OWN_KEYS),
        "order of a user's dictionary": ("return x * 1, dict(self.renamed), {**self.renamed}", OWN_KEYS),
        "order of a user's dictionary that is made": ("return x * 1, dict(Renamed(a=1))", OWN_KEYS),
        "a copy of an ordered dictionary": (
            "return x * 1, copy.copy(self.ordered), self.ordered.copy()",
            "copies a `OrderedDict` by `copy`",
        ),
        "the text of an ordered dictionary's class": (
            "return x * 1, repr(Ordered(a=1))",
            "reads the text of a `Ordered`",
        ),
        "groups that are read": (
            """
            groups = itertools.groupby([x, x, x[0]], key=lambda t: t.dim())
            return x * 1, [(key, [t.shape for t in group]) for key, group in groups]
            """,
            "calls `itertools.groupby`",
        ),
        "the text of a KeyError that was raised": (
            """
            try:
                self.plain["absent"]
            except KeyError as error:
                return x * 1, str(error), f"{error}", error.args
            """,
            "reads the text of a `KeyError`",
        ),
        "the text of an IndexError": (
            "try:\n    self.numbers[9]\nexcept IndexError as error:\n    return x * 1, str(error)",
            "reads the text of a `IndexError`",
        ),
        "the text of one's own exception": (
            """
            try:
                raise ValueError("mine", 2)
            except ValueError as error:
                return x * 1, error.args
            """,
            "reads the text of a `ValueError`",
        ),
        "the largest by a key": ("return x * max([1, -2], key=abs)", r"calls `max\(\)` with a `key`"),
        "format of a number": ("return x * len(format(3, '05d'))", r"calls `format\(\)`: use an f-string"),
        "a range of a bool": ("return x * len(range(True))", r"makes a `range\(\)` of a bool"),
        "the namespace of a module": (
            "vars(sys.modules[__name__])['ADDED'] = 1\nreturn x * 1",
            "writes to the `__dict__` of a module",
        ),
        "the hash of a number": ("return x * 1, hash(1.5), hash((1, 2.5))", HASH),
        "an argument transposed in place": ("y = x.contiguous()\ny.t_()\nreturn y * 1", "strides of `x` in place"),
        "max of rows": ("return max(*x)", "`max\\(\\)` of tensors: use `torch.maximum`"),
        "a checkpoint": (
            "return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)",
            "uses `torch.utils.checkpoint`, which saves memory for a backward pass",
        ),
        "a graph break": (
            "torch._dynamo.graph_break()\nreturn x + 1",
            "Dynamo could not form one graph: .*graph_break",
        ),
        "a tensor decides": ("return x + 1 if x.sum() > 0 else x - 1", DECIDES),
        "an item decides": ("return x + 1 if x.sum().item() > 3 else x - 1", DECIDES),
        "a tensor decides how often": (
            "for _ in range(int(x.sum())):\n    x = x + 1\nreturn x",
            rf"{DECIDES} \(`TruncToInt\(.*\)`\): pass it as an int",
        ),
        "a tensor decides within a graph": (
            "return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))",
            "a graph inside a graph, for `cond`, which cannot be stored: branch or repeat outside the method",
        ),
        "a backward pass": (
            "loss = self.linear(x).sum()\nloss.backward()\nreturn loss",
            "Dynamo could not form one graph: .*backward",
        ),
        "a distribution checks its parameters": (
            "return torch.distributions.Categorical(logits=x).sample()",
            "checks its parameters in code without a trace: pass `validate_args=False`",
        ),
        "the data of a parameter is assigned": (
            "self.linear.weight.data = self.linear.weight.data * 2\nreturn self.linear(x)",
            r"assigns to the `\.data` of `self\.linear\.weight`, which has other memory then; assign a tensor",
        ),
        "a parameter is made": (
            "self.linear.weight = torch.nn.Parameter(self.linear.weight * 2)\nreturn self.linear(x)",
            r"torch\.nn\.Parameter\(\)` constructor",
        ),
        "a weak proxy": ("return x * PROXY.value", "uses `G\\['PROXY'\\]`, a `weakref.proxy`"),
        "a structure of ctypes": ("return x * POINT.number", "uses `G\\['POINT'\\]`, a value of ctypes"),
        "the attributes of a new object, kept": (
            "self.last = Output(x).__dict__\nreturn x + 1",
            "gives away the `__dict__`",
        ),
        "the text of a dict of new objects": ('return x + 1, repr({"k": Tag(3)})', "reads the text of a `dict`"),
        "the text of a new object": ('return x * 1, f"{Tag(3)}"', "reads the text of a `Tag`"),
        "str of a new object": ("return x * 1, str(Tag(4))", "reads the text of a `Tag`"),
        "repr of a new object": ("return x * 1, repr(Tag(5))", "reads the text of a `Tag`"),
        "the text of a function": ("return x * 1, str(torch.sin)", "reads the text of a `builtin_function_or_method`"),
        "the text of a module": ("return x * 1, str(torch)", "reads the text of a `module`"),
        "a finaliser": ("Released(self.pool)\nreturn x + 1", "makes a `.*:Released`, whose `__del__`"),
        "a weak reference": (
            "tag = Tag(1)\nreturn x + 1, weakref.ref(tag)() is None",
            "weak reference to an object that it made",
        ),
        "an iterator leaves": ("return x + 1, iter(self.numbers)", LEAVES),
        "a generator left in a try": (
            """
            def numbers():
                try:
                    yield 1
                    yield 2
                finally:
                    self.count += 10
            for number in numbers():
                break
            return x * number
            """,
            "leaves the generator `.*numbers` in a `try`",
        ),
    },
)
