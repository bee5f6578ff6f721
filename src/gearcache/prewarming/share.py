"""Divides the work of a prewarm among several processes, before anything is compiled.

One process compiles a whole entry: processes that compile gears of one entry would wait for each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256

from msgspec import Struct

from gearcache.errors import OptionError

#: Returns which other process compiles an entry: empty for an entry that this process compiles.
LeftTo = Callable[[str], str]

_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


class Shard(Struct, frozen=True):
    """Share `number` (1 to `count`) of work that `count` processes divide without communication.

    Each of them has to need the same entries: the same function, versions, threads and kind of host. Stored entries do
    not change the shares, so processes that start later compute the same ones.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if any(isinstance(value, bool) or not isinstance(value, int) for value in (self.number, self.count)):
            raise OptionError(f"shard is {(self.number, self.count)!r}; it must be two ints, such as (3, 16)")
        if self.count < 1:
            raise OptionError(f"shard is {self.text}; there must be at least 1 share, as in 1/1")
        if not 1 <= self.number <= self.count:
            raise OptionError(
                f"shard is {self.text}; with {self.count} shares it is 1/{self.count} to {self.count}/{self.count}"
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard that `3/16` names; `OptionError` for an invalid text."""
        match = _SHARD.fullmatch(text)
        if match is None:
            raise OptionError(f"shard is `{text}`; it must be NUMBER/COUNT, such as 3/16")
        return cls(int(match[1]), int(match[2]))

    @property
    def text(self) -> str:
        """`3/16`."""
        return f"{self.number}/{self.count}"

    def divide(self, work: Mapping[str, int]) -> LeftTo:
        """Return a function that says which other shard compiles an entry; `work` is the number of gears by entry."""
        # Of more shares than entries the last ones are empty.
        shares = divide_among(dict.fromkeys(range(min(self.count, len(work))), work))

        def left_to(name: str) -> str:
            index = shares.get(name)
            if index is None:  # needed only in the second run of the function: all shards compute the same one for it
                index = int(sha256(name.encode()).hexdigest()[:12], 16) % self.count
            return "" if index == self.number - 1 else f"shard {index + 1}/{self.count}"

        return left_to


def divide_among(offers: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    """Return the process that compiles each entry, among those that need it; `offers` is the work of each process."""
    loads = dict.fromkeys(offers, 0)
    sizes: dict[str, int] = {}
    for work in offers.values():
        for name, size in work.items():
            sizes[name] = max(size, sizes.get(name, 0))
    compilers: dict[str, int] = {}
    # Entries that few processes can compile come first: else those may be busy with work that others could do.
    candidates = {name: sorted(process for process, work in offers.items() if name in work) for name in sizes}
    for name in sorted(sizes, key=lambda name: (len(candidates[name]), -sizes[name], name)):
        process = min(candidates[name], key=lambda each: (loads[each], each))
        compilers[name] = process
        loads[process] += sizes[name]
    return compilers
