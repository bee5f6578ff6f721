"""Constructs that Dynamo gets wrong by itself: each gives what Python gives, or is refused by name."""

import collections
import contextlib
import copy
import ctypes
import itertools
import math
import operator
import sys
import weakref

import torch
import torch.utils.checkpoint

from tests.cases.case import Case, texts


class Ordered(collections.OrderedDict):
    pass


class Shared(collections.OrderedDict):
    def copy(self):
        return self


class Table(dict):
    pass


class Rows(list):
    pass


class Reduced:
    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return Reduced, (self.number + 5,)


class Stated(Reduced):
    __reduce__ = object.__reduce__

    def __getstate__(self):
        return {"number": 9}


class Echo:
    def __contains__(self, item):
        return item


def inner():
    yield 1
    return 5


def outer():
    found = yield from inner()
    nothing = yield from [2]
    yield found, nothing


def outermost():
    yield (yield from outer())
    yield (yield from inner())


class Slotted:
    __slots__ = ("number",)

    def __init__(self):
        self.number = 2.0


class Below(Slotted):
    __slots__ = ("number",)


class Point(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int),)


class Double:
    number = 2.0

    def __call__(self, x):
        return x * self.number


TARGET = Double()
PROXY, REFERENCE = weakref.proxy(TARGET), weakref.ref(TARGET)
POINT, NUMBER, NUMBERS = Point(3), ctypes.c_int(3), (ctypes.c_int * 2)(3, 4)


class Net(Case):
    def __init__(self):
        super().__init__()
        self.slotted, self.below = Slotted(), Below()
        self.numbers = [3, 1, 2]
        self.bounded = collections.deque([1, 2], maxlen=3)
        self.unbounded = collections.deque([1])
        self.ordered = collections.OrderedDict(a=1, b=[2], c=3)
        self.own_ordered = Ordered(a=1)
        self.table = Table(a=1)
        self.rows = Rows([4])
        self.table.extra = self.rows.extra = self.own_ordered.extra = 7
        self.echo = Echo()
        self.reduced, self.stated = Reduced(1), Stated(1)
        self.pair, self.plain = (1, 2), {"a": 1}
        self.nan, self.half = math.nan, 2.5


OPEN_TEXT = "a text of a tensor among keys"
HASH = r"it calls `hash\(\)`, whose result may differ between processes: use the value itself as a key"
OPEN_LENGTH = "the length of a `str`"
#: Served as Python runs them.
SERVED = texts(
    Net,
    {
        "a slot that was written is read by its descriptor": """
        self.slotted.number = -self.slotted.number
        return x * Slotted.number.__get__(self.slotted, Slotted)
        """,
        "sizes after a transposition in place": """
        y = x * 2
        y.transpose_(0, 1)
        return torch.eye(y.shape[-1]), y.shape, y.stride(), y.is_contiguous(), y
        """,
        "sizes after dims are dropped and added in place": """
        y = x.unsqueeze(0) * 1
        y.squeeze_(0)
        dims = y.dim()
        y.unsqueeze_(1)
        return y * dims * y.dim(), len(y), y.size(1), y.ndim
        """,
        "sizes after an operator in place": "y = x * 1\ntorch.ops.aten.t_(y)\nreturn y.new_zeros(y.shape), y.shape[0]",
        "sizes after a method called on its class": """
        y = x * 1
        torch.Tensor.swapaxes_(y, 0, 1)
        return [row * 1 for row in y]
        """,
        "strides given in place": "y = x * 1\ny.as_strided_((2, 1), (1, 1))\nreturn y.shape, y.stride(), y * 1",
        "keywords of any name": """
        names = dict(original=1, trace=2, self=3, tx=4, args=5, user_cls=6)
        return x * sum(names.values()), "{original}, {trace}, {text}".format(original=1, trace=2, text=3)
        """,
        "any leaves the rest": "rest = iter([1, 2, 3])\nreturn x * 1, any(rest), list(rest)",
        "sum of what is reversed uses up": "rest = reversed(self.numbers)\nreturn x * 1, sum(rest), any(rest), list(rest)",
        "in uses up": "rest = iter([1, 2, 3])\nreturn x * 1, 2 in rest, list(rest)",
        "any, all and sum of a list": "n = self.numbers\nreturn x * 1, any(n), all(n), sum(n), sum([]), sum(k for k in n)",
        "an iterator goes into a list": 'rest = iter("ab")\nreturn x * 1, "".join(rest), [*iter(self.numbers)], list(rest)',
        "a deque that uses up": "rest = iter(self.numbers)\ncollections.deque(rest, maxlen=0)\nreturn x * 1, list(rest)",
        "torch uses up an iterator by a deque": """
        made = [x * 1, {"a": x * 2}]
        torch.utils._pytree.tree_map_(lambda tensor: tensor.add_(1), made)
        return made
        """,
        "an unbounded deque": "self.unbounded.append(2)\nreturn x * 1, self.unbounded.copy(), self.unbounded * 2",
        "in gives a bool": "return x * 1, 2 in self.echo, 0 in self.echo, 0 not in Echo(), operator.contains(self.echo, 2)",
        "__contains__ gives what it gives": "return x * 1, self.echo.__contains__(2)",
        "in of a range": "return x * 1, 2 in range(4), 2.5 in range(4), 2j in range(4), None in range(2)",
        "None and texts among tensors": "return x * 1, None in (x, x + 1), 'a' in [x, 'a'], b'a' not in [x[0, 0]]",
        "the text of one's own exception": """
        try:
            raise ValueError("mine", 2)
        except ValueError as error:
            return x * 1, str(error), error.args
        """,
        "an exception that nobody reads": """
        try:
            self.numbers.remove(7)
        except ValueError as error:
            x = x + 1
        return x
        """,
        "the largest by a key": 'return x * max([("a", 2), ("b", 5)], key=lambda row: row[1])[1]',
        "a table with a default": """
        found = collections.defaultdict(list)
        for name in ("a", "b", "a"):
            found[name].append(x + 1)
        return found
        """,
        "max of one tensor": "return max([x]) * max(1, x.shape[0], 2.5)",
        "a weak reference": "return x * REFERENCE().number",
    },
)
#: What Dynamo of torch 2.13 cannot trace in the byte code of Python 3.10.
YIELDING = texts(
    Net,
    {
        "yield from gives what the generator returned": "return x * 1, list(outer())",
        "yield from within yield from": "return x * 1, list(outermost())",
        "yield from in a handler": """
        def numbers():
            try:
                self.plain["absent"]
            except KeyError as error:
                found = yield from inner()
                yield found, error.args
        return x * 1, list(numbers())
        """,
    },
    refused="Dynamo could not form one graph" if sys.version_info < (3, 11) else False,
)
#: Refused, with what the refusal says.
REFUSED = texts(
    Net,
    {
        "a slot is read by the descriptor of a base class": (
            "self.below.number = 5.0\nreturn x * Slotted.number.__get__(self.below)",
            "by the descriptor of another class",
        ),
        "the length of a text of a tensor": ('return x * len(f"{x}")', OPEN_LENGTH),
        "a caught length of a text of a tensor": (
            'try:\n    return x * len(f"{x}")\nexcept TypeError:\n    return x + 9',
            OPEN_LENGTH,
        ),
        "whether a text of a tensor is empty": ('return x * (2 if f"{x}" else 3)', OPEN_LENGTH),
        "a text of a tensor is a key": ('return x * 1, {f"{x}": 1}', OPEN_TEXT),
        "a text of a tensor is looked for": ('return x * 1, f"{x}" in {str(1): 2}, {}.get(f"{x}")', OPEN_TEXT),
        "a text of a tensor is in a tuple that is looked for": ('return x * 1, (1, f"{x}") in {(1, 2)}', OPEN_TEXT),
        "a text of a tensor is in a set": ('return x * 1, len({f"{x}", f"{x * 1}"})', OPEN_TEXT),
        "a gradient": ("return torch.func.grad(lambda row: row.sum())(x)", "it goes through `torch.func.grad`"),
        "copy of an ordered dictionary's class": ("return x * 1, self.own_ordered.copy()", "copies a `Ordered`"),
        "union of an ordered dictionary's class with its own copy": (
            "return x * 1, Shared(a=1) | {}",
            "copies a `Shared`",
        ),
        "a bounded deque drops": (
            "self.bounded.append(x)\nself.bounded.append(x + 1)\nreturn sum(self.bounded)",
            "a deque with a `maxlen`",
        ),
        "copies of a bounded deque": (
            "b = self.bounded\nreturn x * 1, b + b, b * 2, b.copy(), str(b), b[0]",
            "a deque with a `maxlen`",
        ),
        "move_to_end": ('self.ordered.move_to_end("a")\nreturn x * 1, list(self.ordered)', "it calls `move_to_end`"),
        "a copy of an ordered dictionary": (
            "return x * 1, copy.copy(self.ordered), self.ordered.copy()",
            "copies a `OrderedDict` by `copy`",
        ),
        "a copy by __reduce__": ("return x * copy.copy(self.reduced).number", "copies a `Reduced` by `copy`"),
        "a copy by __getstate__": ("return x * copy.copy(self.stated).number", "copies a `Stated` by `copy`"),
        "the text of an ordered dictionary's class": (
            "return x * 1, repr(Ordered(a=1)), repr(self.ordered)",
            "makes a text of a `Ordered`",
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
            "makes a text of a `KeyError`",
        ),
        "the arguments of a KeyError of pop": (
            "try:\n    self.plain.pop('absent')\nexcept KeyError as error:\n    return x * 1, error.args",
            False if torch.__version__ >= "2.15" else "reads the text of a `KeyError`",
        ),
        "the text of an IndexError": (
            """
        texts = []
        for each in (self.numbers, self.pair):
            try:
                each[9]
            except IndexError as error:
                texts.append(str(error))
        return x * 1, texts
        """,
            "reads the text of a `IndexError`",
        ),
        "the text of a TypeError": (
            "try:\n    len(5)\nexcept TypeError as error:\n    return x * len(error.args[0])",
            "reads the text of a `TypeError`",
        ),
        "hashes of numbers": ("return x * 1, hash(1.5), hash((1, 2.5))", HASH),
        "the hash of nan": ("return x * 1, hash(self.nan)", HASH),
        "an argument transposed in place": ("y = x.contiguous()\ny.t_()\nreturn y * 1", "strides of `x` in place"),
        "max of single elements": ("return max(*x[0])", "`max\\(\\)` of tensors: use `torch.maximum`"),
        "max of rows": ("return max(*x)", "`max\\(\\)` of tensors: use `torch.maximum`"),
        "min of a tensor and a number": (
            "return min(x.sum(), 2.0)",
            "`min\\(\\)` of tensors: use `torch.maximum`, `torch.minimum` or `torch.clamp`",
        ),
        "a checkpoint": (
            "return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)",
            "uses `torch.utils.checkpoint`, which saves memory for a backward pass",
        ),
        "a weak proxy": ("return x * PROXY.number", "uses `G\\['PROXY'\\]`, a `weakref.proxy`"),
        "a weak proxy is called": ("return PROXY(x)", "hold a `weakref.ref` and call it"),
        "a structure of ctypes": ("return x * POINT.number", "uses `G\\['POINT'\\]`, a value of ctypes"),
        "a number of ctypes": ("return x * NUMBER.value", "keep its number as an attribute"),
        "an array of ctypes": ("return x * NUMBERS[0]", "a value of ctypes"),
    },
)
