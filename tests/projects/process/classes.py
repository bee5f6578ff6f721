"""What a class defines decides what Python does with its objects."""

import collections
import functools

import torch
from fact import Fact
from torch import nn


class Tool:
    pass


class Caller:
    def __call__(self, x):
        return x * 3


class Switch:
    pass


class Sized:
    def __len__(self):
        return 2


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


class Level:
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


class Context:
    def __enter__(self):
        return 2.0

    def __exit__(self, *arguments):
        return False


class Items(list):
    pass


class Table(dict):
    pass


class Text(str):
    pass


class Special(nn.Module):
    def forward(self, x):
        return x * 2


class Child(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return x * 2


class ACallMethodAppears(Fact):
    def __init__(self):
        super().__init__()
        self.tool = Tool()

    def run(self, x):
        return x * 2 if callable(self.tool) else x * 3

    def change(self, patch):
        patch(Tool, "__call__", lambda self: 1)


class ACallMethodIsAnother(Fact):
    def __init__(self):
        super().__init__()
        self.tool = Caller()

    def run(self, x):
        return self.tool(x)

    def change(self, patch):
        patch(Caller, "__call__", lambda self, x: x * 5)


class ATruthAppears(Fact):
    def __init__(self):
        super().__init__()
        self.switch = Switch()

    def run(self, x):
        return x * 2 if self.switch else x * 3

    def change(self, patch):
        patch(Switch, "__bool__", lambda self: False)


class ALengthAppears(Fact):
    def __init__(self):
        super().__init__()
        self.switch = Switch()

    def run(self, x):
        return x * 2 if self.switch else x * 3

    def change(self, patch):
        patch(Switch, "__len__", lambda self: 0)


class ATruthBesideALength(Fact):
    def __init__(self):
        super().__init__()
        self.sized = Sized()

    def run(self, x):
        return x * 2 if self.sized else x * 3

    def change(self, patch):
        patch(Sized, "__bool__", lambda self: False)


class ATruthInABranchOfNot(Fact):
    def __init__(self):
        super().__init__()
        self.switch = Switch()

    def run(self, x):
        return x * 2 if not self.switch else x * 3

    def change(self, patch):
        patch(Switch, "__bool__", lambda self: False)


class AnEqualityAppears(Fact):
    def __init__(self):
        super().__init__()
        self.first, self.second = Plain(), Plain()

    def run(self, x):
        return x * 2 if self.first == self.second else x * 3

    def change(self, patch):
        patch(Plain, "__eq__", lambda self, other: self.value == other.value)


class AnInequalityAppears(Fact):
    def __init__(self):
        super().__init__()
        self.first, self.second = Plain(), Plain()

    def run(self, x):
        return x * 2 if self.first != self.second else x * 3

    def change(self, patch):
        patch(Plain, "__ne__", lambda self, other: False)


class AnEqualityInAList(Fact):
    def __init__(self):
        super().__init__()
        self.items, self.wanted = [Plain(1), Plain(2)], Plain(2)

    def run(self, x):
        return x * 2 if self.wanted in self.items else x * 3

    def change(self, patch):
        patch(Plain, "__eq__", lambda self, other: self.value == other.value)


class AnEqualityOfWhatIsMade(Fact):
    def run(self, x):
        return x * 2 if Plain() == Plain() else x * 3

    def change(self, patch):
        patch(Plain, "__eq__", lambda self, other: True)


class AnIteratorBesideItems(Fact):
    def __init__(self):
        super().__init__()
        self.lister = Lister()

    def run(self, x):
        for item in self.lister:
            x = x + item
        return x

    def change(self, patch):
        patch(Lister, "__iter__", lambda self: iter([10, 20]))


class AContainsBesideItems(Fact):
    def __init__(self):
        super().__init__()
        self.lister = Lister()

    def run(self, x):
        return x * 2 if 1 in self.lister else x * 3

    def change(self, patch):
        patch(Lister, "__contains__", lambda self, item: False)


class AnAdditionAppears(Fact):
    def __init__(self):
        super().__init__()
        self.level = Level()

    def run(self, x):
        return x * 2 if hasattr(self.level, "__add__") else x * 3

    def change(self, patch):
        patch(Level, "__add__", lambda self, other: 1)


class AMissingAttributeIsMadeByGetattr(Fact):
    def __init__(self):
        super().__init__()
        self.plain = Plain()

    def run(self, x):
        return x * getattr(self.plain, "missing", 2.0)

    def change(self, patch):
        patch(Plain, "__getattr__", lambda self, name: 7.0)


class AnAttributeIsReadByGetattribute(Fact):
    def __init__(self):
        super().__init__()
        self.plain = Plain(2.0)

    def run(self, x):
        return x * self.plain.value

    def change(self, patch):
        patch(
            Plain,
            "__getattribute__",
            lambda self, name: 7.0 if name == "value" else object.__getattribute__(self, name),
        )


class AClassAttributeIsReadByTheMetaclass(Fact):
    def run(self, x):
        return x * Made.weight

    def change(self, patch):
        patch(Meta, "__getattribute__", lambda cls, name: 7.0 if name == "weight" else type.__getattribute__(cls, name))


class AMetaclassGetsAnAttribute(Fact):
    def run(self, x):
        return x * getattr(Made, "height", 2.0)

    def change(self, patch):
        patch(Meta, "height", 7.0)


class AMetaclassGetsATruth(Fact):
    def run(self, x):
        return x * 2 if Made else x * 3

    def change(self, patch):
        patch(Meta, "__bool__", lambda cls: False)


class AMetaclassGetsACall(Fact):
    def run(self, x):
        return x * Made().weight

    def change(self, patch):
        patch(Meta, "__call__", lambda cls: Plain7())


class Plain7:
    weight = 7.0


class AMetaclassGetsALength(Fact):
    def run(self, x):
        return x * (len(Made) if hasattr(type(Made), "__len__") else 2)

    def change(self, patch):
        patch(Meta, "__len__", lambda cls: 7)


class ADescriptorBecomesDataDescriptor(Fact):
    def __init__(self):
        super().__init__()
        self.holder = Holder()
        self.holder.__dict__["value"] = 3.0

    def run(self, x):
        return x * self.holder.value

    def change(self, patch):
        patch(Described, "__set__", lambda self, instance, value: None)


class ADescriptorReadsAnother(Fact):
    def __init__(self):
        super().__init__()
        self.holder = Holder()

    def run(self, x):
        return x * self.holder.value

    def change(self, patch):
        patch(Described, "__get__", lambda self, instance, owner: 7.0)


class ANearerBaseGetsTheName(Fact):
    def __init__(self):
        super().__init__()
        self.object = Nearest()

    def run(self, x):
        return self.object.scale(x)

    def change(self, patch):
        patch(Middle, "scale", lambda self, x: x * 7)


class TheClassItselfGetsTheName(Fact):
    def __init__(self):
        super().__init__()
        self.object = Nearest()

    def run(self, x):
        return self.object.scale(x)

    def change(self, patch):
        patch(Nearest, "scale", lambda self, x: x * 7)


class TheClassItselfGetsTheConstant(Fact):
    def __init__(self):
        super().__init__()
        self.object = Nearest()

    def run(self, x):
        return x * self.object.factor

    def change(self, patch):
        patch(Nearest, "factor", 7.0)


class TheClassItselfGetsTheConstantReadOnTheClass(Fact):
    def run(self, x):
        return x * Nearest.factor

    def change(self, patch):
        patch(Nearest, "factor", 7.0)


class ANearerBaseGetsTheConstant(Fact):
    def run(self, x):
        return x * Nearest.factor

    def change(self, patch):
        patch(Middle, "factor", 7.0)


class APropertyHidesTheInstance(Fact):
    def __init__(self):
        super().__init__()
        self.object = Nearest()
        self.object.factor = 3.0

    def run(self, x):
        return x * self.object.factor

    def change(self, patch):
        patch(Nearest, "factor", property(lambda self: 7.0))


class AnInstanceHidesTheClass(Fact):
    def __init__(self):
        super().__init__()
        self.object = Nearest()

    def run(self, x):
        return x * self.object.factor

    def change(self, patch):
        patch(self.object, "factor", 7.0)


class AnInstanceHidesAMethod(Fact):
    def __init__(self):
        super().__init__()
        self.object = Nearest()

    def run(self, x):
        return self.object.scale(x)

    def change(self, patch):
        patch(self.object, "scale", lambda x: x * 7)


class AnAttributeOfAnObjectAppears(Fact):
    def __init__(self):
        super().__init__()
        self.object = Lookup()

    def run(self, x):
        return x * 2 if hasattr(self.object, "unknown") else x * 3

    def change(self, patch):
        patch(self.object, "unknown", 7.0)


class AnAttributeOfAnObjectsClassAppears(Fact):
    def __init__(self):
        super().__init__()
        self.object = Lookup()

    def run(self, x):
        return x * 2 if hasattr(self.object, "unknown") else x * 3

    def change(self, patch):
        patch(Lookup, "unknown", 7.0)


class AnAttributeOfAClassAppears(Fact):
    def run(self, x):
        return x * getattr(Lookup, "unknown", 2.0)

    def change(self, patch):
        patch(Lookup, "unknown", 7.0)


class AnAttributeAppearsThatIsAskedForBeforeItFails(Fact):
    def __init__(self):
        super().__init__()
        self.object = Lookup()

    def run(self, x):
        try:
            return x * self.object.unknown
        except AttributeError:
            return x * 2

    def change(self, patch):
        patch(Lookup, "unknown", 7.0)


class AnAttributeOfAChildAppears(Fact):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def run(self, x):
        return self.child(x) * getattr(self.child, "gain", 1.0)

    def change(self, patch):
        patch(Child, "gain", 7.0)


class AnAttributeOfTheModuleAppears(Fact):
    def run(self, x):
        return x * getattr(self, "gain", 1.0)

    def change(self, patch):
        patch(type(self), "gain", 7.0)


class AnAttributeOfAComputedNameAppears(Fact):
    def __init__(self):
        super().__init__()
        self.object, self.kind = Lookup(), "wn"

    def run(self, x):
        return x * 2 if hasattr(self.object, "unkno" + self.kind) else x * 3

    def change(self, patch):
        patch(Lookup, "unknown", 7.0)


class AChildsHookIsAMethod(Fact):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def run(self, x):
        return self.child(x)

    def change(self, patch):
        patch(Child, "__call__", lambda self, x: x * 7)


class AChildsCallImplementation(Fact):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def run(self, x):
        return self.child(x)

    def change(self, patch):
        patch(Child, "_call_impl", lambda self, x: x * 7)


class AChildsGetattr(Fact):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def run(self, x):
        return x * 2 if hasattr(self.child, "unknown") else x * 3

    def change(self, patch):
        patch(Child, "__getattr__", lambda self, name: 7.0)


class AModuleListHasATruth(Fact):
    def __init__(self):
        super().__init__()
        self.children_ = nn.ModuleList([Special()])

    def run(self, x):
        return x * 2 if self.children_ else x * 3

    def change(self, patch):
        patch(nn.ModuleList, "__bool__", lambda self: False)


class AChildHasATruth(Fact):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def run(self, x):
        return x * 2 if self.child else x * 3

    def change(self, patch):
        patch(Child, "__bool__", lambda self: False)


class AContextEntersAnother(Fact):
    def run(self, x):
        with Context() as factor:
            return x * factor

    def change(self, patch):
        patch(Context, "__enter__", lambda self: 7.0)


class AListSubclassIterates(Fact):
    def __init__(self):
        super().__init__()
        self.items = Items([1, 2])

    def run(self, x):
        for item in self.items:
            x = x * item
        return x

    def change(self, patch):
        patch(Items, "__iter__", lambda self: iter([7]))


class AListSubclassHasALength(Fact):
    def __init__(self):
        super().__init__()
        self.items = Items([1, 2])

    def run(self, x):
        return x * len(self.items)

    def change(self, patch):
        patch(Items, "__len__", lambda self: 7)


class ADictSubclassMissesKeys(Fact):
    def __init__(self):
        super().__init__()
        self.table = Table(a=1)

    def run(self, x):
        try:
            return x * self.table["b"]
        except KeyError:
            return x * 3

    def change(self, patch):
        patch(Table, "__missing__", lambda self, key: 7)


class ADictSubclassGetsAnotherWay(Fact):
    def __init__(self):
        super().__init__()
        self.table = Table(a=1)

    def run(self, x):
        return x * self.table.get("a", 5)

    def change(self, patch):
        patch(Table, "get", lambda self, key, default=None: 7)


class AFormatAppears(Fact):
    def __init__(self):
        super().__init__()
        self.plain, self.table = Plain(), {"seven": 7.0}

    def run(self, x):
        return x * self.table.get(f"{self.plain}", 2.0)

    def change(self, patch):
        patch(Plain, "__str__", lambda self: "seven")


class ARepresentationAppears(Fact):
    def __init__(self):
        super().__init__()
        self.plain = Plain()

    def run(self, x):
        return x * len(repr(self.plain))

    def change(self, patch):
        patch(Plain, "__repr__", lambda self: "seven")


class AHashAppears(Fact):
    def __init__(self):
        super().__init__()
        self.plain = Plain()

    def run(self, x):
        return x * (hash(self.plain) % 7)

    def change(self, patch):
        patch(Plain, "__hash__", lambda self: 3)


class AnIndexAppears(Fact):
    def __init__(self):
        super().__init__()
        self.plain = Plain()

    def run(self, x):
        try:
            return x * range(10)[self.plain]
        except TypeError:
            return x * 3

    def change(self, patch):
        patch(Plain, "__index__", lambda self: 7)


class AFloatAppears(Fact):
    def __init__(self):
        super().__init__()
        self.plain = Plain()

    def run(self, x):
        try:
            return x * float(self.plain)
        except TypeError:
            return x * 3

    def change(self, patch):
        patch(Plain, "__float__", lambda self: 7.0)


class ASlotOfAReflectedOperator(Fact):
    def __init__(self):
        super().__init__()
        self.plain = Plain()

    def run(self, x):
        try:
            return x * (2 + self.plain)
        except TypeError:
            return x * 3

    def change(self, patch):
        patch(Plain, "__radd__", lambda self, other: 7.0)


class AnotherClassOfTheObject(Fact):
    def __init__(self):
        super().__init__()
        self.object = Base()

    def run(self, x):
        return self.object.scale(x) if type(self.object) is Base else x * 3

    def change(self, patch):
        patch(self, "object", Nearest())


class AnUnhashedDefaultdict(Fact):
    def __init__(self):
        super().__init__()
        self.table = collections.defaultdict(lambda: 2.0)

    def run(self, x):
        return x * self.table["a"]

    def change(self, patch):
        self.table.default_factory = lambda: 7.0


class APartialMethod(Fact):
    def scaled(self, x, factor):
        return x * factor

    doubled = functools.partialmethod(scaled, factor=2)

    def run(self, x):
        return self.doubled(x)

    def change(self, patch):
        patch(type(self), "doubled", functools.partialmethod(type(self).scaled, factor=7))


class AMethodIsStatic(Fact):
    def __init__(self):
        super().__init__()
        self.object = Base()

    def run(self, x):
        return self.object.scale(x)

    def change(self, patch):
        patch(Base, "scale", staticmethod(lambda x: x * 7))


class SubclassesAreCounted(Fact):
    def run(self, x):
        return x * (1 + len(Base.__subclasses__()))

    def change(self, patch):
        self.another = type("Another", (Base,), {})

        def forget():
            self.another = None
            import gc

            gc.collect()

        patch.callback(forget)


class AnAttributeOfAFunction(Fact):
    def run(self, x):
        return x * getattr(helper, "gain", 2.0)

    def change(self, patch):
        patch(helper, "gain", 7.0)


def helper(x):
    return x


class TheBasesAreOthers(Fact):
    def __init__(self):
        super().__init__()
        self.object = Rebased()

    def run(self, x):
        return x * self.object.factor

    def change(self, patch):
        before = Rebased.__bases__
        Rebased.__bases__ = (Other,)
        patch.callback(setattr, Rebased, "__bases__", before)


class Other:
    factor = 7.0


class Rebased(Base):
    pass


class TheObjectIsOfAnotherClassOfTheName(Fact):
    def __init__(self):
        super().__init__()
        self.object = Base()

    def run(self, x):
        return x * self.object.factor if isinstance(self.object, Base) else x * 3

    def change(self, patch):
        copy = type("Base", (), {"factor": 2.0, "__module__": Base.__module__})
        copy.__qualname__ = Base.__qualname__
        patch(self, "object", copy())


class ATensorIsUnaffected(Fact):
    def run(self, x):
        return torch.relu(x)

    def change(self, patch):
        patch(Base, "unrelated", 1)
