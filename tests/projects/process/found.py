"""Look-ups that found nothing where a trace first looked, and containers that are equal but not to a trace."""

import collections
import contextlib
import enum
import sys
import types

import torch
from fact import Fact
from torch import nn


class AKeyThatIsAbsent(Fact):
    def __init__(self):
        super().__init__()
        self.table = {"a": 1.0}

    def run(self, x):
        try:
            return x * self.table["b"]
        except KeyError:
            return x * 3

    def change(self, patch):
        patch.item(self.table, "b", 2.0)


class AKeyThatIsAbsentIsSuppressed(AKeyThatIsAbsent):
    def run(self, x):
        factor = 3.0
        with contextlib.suppress(KeyError):
            factor = self.table["b"]
        return x * factor


class AKeyOfAChain(Fact):
    def __init__(self):
        super().__init__()
        self.table = collections.ChainMap({}, {"b": 2.0})

    def run(self, x):
        return x * self.table["b"]

    def change(self, patch):
        patch.item(self.table.maps[0], "b", 7.0)


class Registry:
    def __init__(self):
        self.table = {}

    def look_up(self, key):
        try:
            return self.table[key]
        except KeyError:
            return None


REGISTRY = Registry()


class AKeyOfARegistry(Fact):
    def run(self, x):
        activation = REGISTRY.look_up("activation")
        return x * 1 if activation is None else activation(x)

    def change(self, patch):
        patch.item(REGISTRY.table, "activation", torch.sin)


class Holder:
    pass


class AKeyOfAnObjectsDictionary(Fact):
    def __init__(self):
        super().__init__()
        self.holder = Holder()

    def run(self, x):
        try:
            return x * self.holder.__dict__["b"]
        except KeyError:
            return x * 3

    def change(self, patch):
        patch(self.holder, "b", 2.0)


class WhetherAnObjectsDictionaryHasAKey(AKeyOfAnObjectsDictionary):
    def run(self, x):
        return x * (2.0 if "b" in self.holder.__dict__ else 3.0)


class AKeyOfAnObjectsDictionaryByDefault(AKeyOfAnObjectsDictionary):
    def run(self, x):
        return x * vars(self.holder).get("b", 3.0)


class AllKeysOfAnObjectsDictionary(AKeyOfAnObjectsDictionary):
    def __init__(self):
        super().__init__()
        self.holder.a = 3.0

    def run(self, x):
        return x * sum(vars(self.holder).values())


class TheLengthOfAnObjectsDictionary(AllKeysOfAnObjectsDictionary):
    def run(self, x):
        return x * len(self.holder.__dict__)


class Equal:
    def __eq__(self, other):
        return other == 1

    __hash__ = None


class AConstantAmongObjects(Fact):
    def __init__(self):
        super().__init__()
        self.holder = Holder()

    def run(self, x):
        return x * (2.0 if 1 in [self.holder] else 3.0)

    def change(self, patch):
        patch(self, "holder", Equal())


class AnEqualityThatAClassGets(AConstantAmongObjects):
    def change(self, patch):
        patch(Holder, "__eq__", lambda self, other: True)


class ABufferOfWhichTheSizeIsRead(Fact):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.ones(3, 4))

    def run(self, x):
        return x * self.table.shape[0]

    def change(self, patch):
        patch.item(self._buffers, "table", torch.ones(2, 4))


class ABufferOfWhichTheStridesAreRead(ABufferOfWhichTheSizeIsRead):
    def run(self, x):
        return x * (2.0 if self.table.is_contiguous() else 3.0)

    def change(self, patch):
        patch.item(self._buffers, "table", torch.ones(3, 8)[:, ::2])


class ABufferOfWhichTheDataIsExchanged(ABufferOfWhichTheSizeIsRead):
    def change(self, patch):
        before = self.table.data
        self.table.data = torch.ones(2, 4)
        patch.callback(setattr, self.table, "data", before)


class AWrittenParameterThatIsNoneAnyMore(Fact):
    def __init__(self):
        super().__init__()
        self.step = nn.Parameter(torch.zeros(1), requires_grad=False)

    def run(self, x):
        self.step.detach().mul_(1)
        return x * (self.step + 2)

    def change(self, patch):
        before = self._parameters.pop("step")
        patch.callback(setattr, self, "step", before)
        patch.callback(delattr, self, "step")
        self.step = torch.ones(1)


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


class AnEnumByIdentity(Fact):
    def __init__(self):
        super().__init__()
        self.kind = Kind.FIRST

    def run(self, x):
        return x * 2 if self.kind is Kind.FIRST else x * 3

    def change(self, patch):
        patch(self, "kind", Kind.SECOND)


class WhetherADictionaryIsEmpty(Fact):
    def __init__(self):
        super().__init__()
        self.table = self.empty()

    def empty(self):
        return {}

    def run(self, x):
        is_empty = not self.table
        return x * (2 if is_empty else 3)

    def change(self, patch):
        patch.item(self.table, "a", 1.0)


class WhetherAnOrderedDictionaryIsEmpty(WhetherADictionaryIsEmpty):
    def empty(self):
        return collections.OrderedDict()

    def run(self, x):
        return x * (2 if self.table else 3)


class KeysUnpackedIntoAList(WhetherADictionaryIsEmpty):
    def run(self, x):
        return x * len([*self.table])


class TheTextOfADictionary(WhetherADictionaryIsEmpty):
    def run(self, x):
        return x * len(f"{self.table}")


class WhetherAnyKeyIsTrue(WhetherADictionaryIsEmpty):
    def run(self, x):
        return x * (2 if any(self.table) else 3)


class WhetherAChainIsEmpty(WhetherADictionaryIsEmpty):
    def empty(self):
        return collections.ChainMap({})

    def run(self, x):
        return x * (2 if self.table else 3)


class AnObjectWithItsOwnText:
    def __init__(self):
        self.width = 3

    def __repr__(self):
        return "w" * self.width


class TheTextOfAnObject(Fact):
    def __init__(self):
        super().__init__()
        self.object = AnObjectWithItsOwnText()

    def run(self, x):
        return x * len(str(self.object))

    def change(self, patch):
        patch(self.object, "width", 5)


class AModuleThatIsAbsent(Fact):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Tanh()})

    def run(self, x):
        try:
            return self.parts["b"](-x)
        except KeyError:
            return x * 3

    def change(self, patch):
        patch.item(self.parts._modules, "b", nn.ReLU())


class Made:
    def __getattr__(self, name):
        return 2.0


class AnAttributeThatItsClassMakes(Fact):
    def __init__(self):
        super().__init__()
        self.made = Made()

    def run(self, x):
        return x * self.made.scale

    def change(self, patch):
        patch(self.made, "scale", 3.0)


class AnAttributeOfAClassThatMakesIt(AnAttributeThatItsClassMakes):
    def change(self, patch):
        patch(Made, "scale", 4.0)


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


class AnAttributeOfAWrappedModule(Fact):
    def __init__(self):
        super().__init__()
        self.wrapper = Wrapper()

    def run(self, x):
        return self.wrapper(x)

    def change(self, patch):
        patch(self.wrapper, "scale", 5.0)


class Meta(type):
    factor = 2.0


class WithMeta(metaclass=Meta):
    pass


class AnAttributeOfAMetaclass(Fact):
    def run(self, x):
        return x * WithMeta.factor

    def change(self, patch):
        patch(Meta, "factor", 3.0)


class TheOrderOfADictionary(Fact):
    def __init__(self):
        super().__init__()
        self.table = collections.OrderedDict(a=1.0, b=2.0)

    def run(self, x):
        for value in self.table.values():
            x = x * 2 + value
        return x

    def change(self, patch):
        self.table.move_to_end("a")
        patch.callback(self.table.move_to_end, "b")


class AQueueOfZeros(Fact):
    def __init__(self):
        super().__init__()
        self.queue = collections.deque([0.0])

    def run(self, x):
        return torch.atan2(x.abs() * self.queue[0], torch.full_like(x, -1.0))

    def change(self, patch):
        self.queue[0] = -0.0
        patch.callback(self.queue.__setitem__, 0, 0.0)


class AlwaysEqual:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, AlwaysEqual)


class AQueueOfEqualObjects(Fact):
    def __init__(self):
        super().__init__()
        self.queue = collections.deque([AlwaysEqual(1.0)])

    def run(self, x):
        return x * self.queue[0].value

    def change(self, patch):
        before = self.queue[0]
        self.queue[0] = AlwaysEqual(5.0)
        patch.callback(self.queue.__setitem__, 0, before)


class ASetOfAnEqualNumber(Fact):
    def __init__(self):
        super().__init__()
        self.members = {1}

    def run(self, x):
        for member in self.members:
            x = x.long() * member
        return x

    def change(self, patch):
        self.members.clear()
        self.members.add(1.0)
        patch.callback(self.members.add, 1)
        patch.callback(self.members.clear)


sys.modules["process_helper"] = types.SimpleNamespace(FACTOR=2.0)


class AModuleImportedInside(Fact):
    def run(self, x):
        import process_helper

        return x * process_helper.FACTOR

    def change(self, patch):
        patch.item(sys.modules, "process_helper", types.SimpleNamespace(FACTOR=7.0))


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self):
        self.first = 2.0


class ASlotThatIsNotSet(Fact):
    def __init__(self):
        super().__init__()
        self.slotted = Slotted()

    def run(self, x):
        return x * self.slotted.first * getattr(self.slotted, "second", 3.0)

    def change(self, patch):
        self.slotted.second = 4.0
        patch.callback(delattr, self.slotted, "second")


class TheCodeOfTheMethod(Fact):
    def run(self, x):
        return x * 2

    def change(self, patch):
        patch(TheCodeOfTheMethod.run, "__code__", (lambda self, x: x * 5).__code__)
