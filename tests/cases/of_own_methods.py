"""What the user's enums, numbers and classes answer by methods of their own: a trace notes nothing of what these read."""

import dataclasses
import enum

from tests.cases.case import Case, changed, put, texts

FACTOR = 1


class Truthful(enum.Enum):
    LOW = 1
    HIGH = 2

    def __bool__(self):
        return self.value > FACTOR


class Ordered(enum.Enum):
    LOW = 1
    HIGH = 2

    def __lt__(self, other):
        return self.value * FACTOR < other.value


class Found(enum.Enum):
    ONE = 1
    TWO = 2

    @classmethod
    def _missing_(cls, value):
        return list(cls)[FACTOR - 1]


class Own(enum.Enum):
    """Its methods read nothing but the member."""

    SMALL = 1
    LARGE = 2

    def __bool__(self):
        return self.value > 1

    def __lt__(self, other):
        return self.value < other.value

    def __str__(self):
        return self.name.lower()

    @classmethod
    def _missing_(cls, value):
        return cls.SMALL


class Percent(float):
    def __mul__(self, other):
        return other * (float(self) / 100)

    __rmul__ = __mul__


class Third(int):
    def __index__(self):
        return int(self) // 3


class Count(int):
    unit = "rows"


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
    def inner(cls):
        return cls.held[0]["a"]

    def __class_getitem__(cls, name):
        return cls.table[name]


class Registry(type):
    table = {"a": 2.0}

    def __str__(cls):
        return f"{cls.table}"

    @property
    def first(cls):
        return cls.table["a"]


class Registered(metaclass=Registry):
    pass


class Net(Case):
    def __init__(self):
        super().__init__()
        self.gain, self.place, self.count = Percent(50), Third(3), Count(3)
        self.config, self.sized = Config(), Sized()


#: Followed: what they read is a value of the object or of the class.
FOLLOWED = changed(
    Net,
    {
        "members whose methods read nothing else": (
            "return x * (2 if Own.SMALL < Own.LARGE else 3) * len(f'{Own.LARGE}') * Own(9).value * (5 if Own.LARGE else 7)",
            put(Own, "__lt__", lambda self, other: self.value > other.value),
        ),
        "a tensor times a share": ("return x * self.gain", lambda self, patch: patch(self, "gain", Percent(20))),
        "a number without methods of its own": (
            "return self.count * x + [1, 2, 3, 4][self.count]",
            lambda self, patch: patch(self, "count", Count(2)),
        ),
        "a dataclass as a dictionary": (
            "return x * len(dataclasses.asdict(self.config))",
            put(Config, "__dataclass_fields__", FEWER),
        ),
        "what a descriptor reads of its owner": ("return x * self.sized.width", put(Sized, "heads", 3)),
    },
    refused=False,
)
READS = "whose `__{}__` reads what no trace notes"
REFUSED = texts(
    Net,
    {
        "the truth of a member": ("return x * 2 if Truthful.LOW else x * 3", READS.format("bool")),
        "which member is less": ("return x * (2 if Ordered.LOW < Ordered.HIGH else 3)", READS.format("lt")),
        "the member of another value": ("return x * Found(7).value", "the enum `.*Found`, whose `_missing_` reads"),
        "a share of a tensor": ("return self.gain * x", "number of the class `.*Percent`, whose `__mul__`"),
        "an index of its own": (
            "return x * [1, 2, 3, 4][self.place]",
            "number of the class `.*Third`, whose `__index__`",
        ),
        "a table that a descriptor reads": ("return x * self.sized.inner", "it reads `held` of the class"),
        "an item of a class": ("return x * Sized['a']", "`__class_getitem__` of `.*Sized` answers"),
        "a text by the metaclass": ("return x * len(str(Registered))", "`__str__` of `.*Registry` answers"),
        "a property of the metaclass": ("return x * Registered.first", "an attribute of its metaclass"),
    },
)
