"""The stored variants that a binding knows: those of its entry, and of the entry's siblings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gearcache.cache.result import MissReason
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.interrupts import raise_interrupt
from gearcache.serving.find.entry import Absence, Entry

if TYPE_CHECKING:
    from gearcache.serving.find.sibling_entries import Sibling


class KnownVariants:
    """What the entry and its siblings held when they were last read. Not thread-safe: its owner locks."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        #: None until they were read.
        self._own: list[StoredVariant] | None = None
        self._siblings: list[Sibling] | None = None

    def all(self) -> list[StoredVariant]:
        """Return them; none before the first `read`."""
        return [*(self._own or ()), *self._of_siblings()]

    def _of_siblings(self) -> list[StoredVariant]:
        return [variant for sibling in self._siblings or () for variant in sibling.variants]

    def read(self) -> Absence | None:
        """Read the entry the first time; returns why there is none."""
        if self._own is not None:
            return None
        variants_or_absence = self._entry.read()
        self._own = [] if isinstance(variants_or_absence, Absence) else variants_or_absence
        return variants_or_absence if isinstance(variants_or_absence, Absence) else None

    def read_siblings(self, absence: Absence | None) -> list[StoredVariant]:
        """Return the variants of sibling entries, the first time; they are known then."""
        if self._siblings is not None or (absence is not None and absence.kind != MissReason.ABSENT.value):
            return []
        from gearcache.serving.find.sibling_entries import siblings_of  # a hit does not need it

        self._siblings = siblings_of(self._entry)
        return self._of_siblings()

    def read_again(self, loaded: Iterable[StoredVariant]) -> list[StoredVariant]:
        """Know the loaded variants and those that are stored now, and return the stored ones."""
        present, own = self._entry.read_again(), list(loaded)
        self._own = [*own, *unknown(present, own)]
        return present

    def take_fresh(self) -> tuple[list[StoredVariant], bool]:
        """Return the variants that are stored now, and whether any of them were unknown; they are known then."""
        present = self._entry.read_again()
        fresh = unknown(present, self.all())
        if fresh:
            self._own = [*(self._own or ()), *fresh]
        return present, bool(fresh)

    def forget(self, variants: Iterable[StoredVariant]) -> None:
        """Forget variants that were stored anew: the reason why they were not used may no longer apply."""
        texts = set(map(text_of, variants))
        self._own = [variant for variant in self._own or () if text_of(variant) not in texts]

    def places(self, variants: list[StoredVariant]) -> list[str]:
        """Return where some variants are stored, in words."""
        ids = set(map(id, variants))
        siblings = [each for each in self._siblings or () if not ids.isdisjoint(map(id, each.variants))]
        own = [] if all(map(self._is_of_sibling, variants)) else [str(self._entry.layout.manifest(self._entry.key))]
        note = "of a module that differs only where the method does not reach"
        return [*own, *(f"{each.manifest}, {note}" for each in siblings)]

    def _is_of_sibling(self, variant: StoredVariant) -> bool:
        return any(variant is other for other in self._of_siblings())

    def adopt_siblings(self, loaded: Iterable[StoredVariant]) -> None:
        """Store in this entry those loaded variants that are of siblings, so that other hosts find them by its key.

        Raises `CacheError`. Not to be called under the lock of the key.
        """
        entry, loaded_by_id = self._entry, {id(variant): variant for variant in loaded}
        of_siblings = [variant for variant in loaded_by_id.values() if self._is_of_sibling(variant)]
        if not of_siblings or entry.is_in_memory or not unknown(of_siblings, entry.read_again()):
            return
        with entry.exclusive():
            present = entry.read_again()
            variants = unknown(of_siblings, present)
            if variants and len(present) + len(variants) <= entry.max_variants:
                entry.adopt(variants, present)


def unknown(variants: list[StoredVariant], known_variants: list[StoredVariant]) -> list[StoredVariant]:
    """Return the variants that are not among the known ones."""
    texts = set(map(text_of, known_variants))
    return [variant for variant in variants if text_of(variant) not in texts]


def text_of(variant: StoredVariant) -> str | None:
    """Return a text that identifies a variant; None for data that is not a variant."""
    try:
        return repr(variant.to_plain())
    except Exception as error:
        raise_interrupt(error)
        return None
