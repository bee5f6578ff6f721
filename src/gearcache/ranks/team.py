"""One rank's part of the work: it looks up its pieces, compiles or adopts what is missing, and loads them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from types import CodeType
from typing import Any

from gearcache.cache.keys.fingerprint import Ranks
from gearcache.errors import CompileNotAgreed, GearcacheError
from gearcache.ge_cache.dependencies.log import collected_code
from gearcache.guards.gears.short_names import sizes_name
from gearcache.prewarming.survey import survey
from gearcache.ranks.declared_calls import Piece
from gearcache.ranks.meeting import Meeting
from gearcache.ranks.plan import LEFT_OUT, PieceVote
from gearcache.ranks.shared_folders import Places
from gearcache.serving.call.call import Call
from gearcache.serving.find.binding import Binding
from gearcache.serving.fleet.adoption import adopt, key_of
from gearcache.serving.fleet.entry_tiers import work_text

logger = logging.getLogger("gearcache")
#: Backends that compile from a job alone, in a process that does not know the ranks, or do not compile.
_SHARED_BACKENDS = ("eager", "inductor")
_BUILT = "built"


class PieceWork:
    """One piece on this rank, from the lookup to the loaded graphs."""

    def __init__(self, piece: Piece, places: Places, meeting: Meeting) -> None:
        self._piece = piece
        self._method = piece.method
        self._places = places
        self._meeting = meeting
        self._state, self._reason = "missing", ""
        self._missing: list[str] = []
        #: Separates this rank's work from work that looked equal: the digests of its trace, then its rank.
        self._distinction: list[str] = []
        self._trace_digests: list[str] | None = None
        #: Why its trace failed, and the code that the trace went through.
        self._failure: tuple[GearcacheError, set[CodeType]] | None = None
        #: Whether the tiers were asked for this rank's own entry.
        self._has_asked = False

    @property
    def name(self) -> str:
        """The method, as messages name it."""
        return self._method.name

    def look_up(self) -> PieceVote:
        """Return the state of the piece; loads nothing."""
        call = self._call()
        with self._method.locked():
            binding = self._method.current_binding(call)
            if self._state != "out":
                self._update_state(binding, call)
            return PieceVote(
                self._method.name,
                self._state,
                self._work(binding, call),
                self._places.of(binding.entry.layout, binding.builds.tiers.shared()),
                self._reason,
            )

    def _update_state(self, binding: Binding, call: Call) -> None:
        if binding.serves(call):
            self._state = "loaded"
            return
        if self._state == "damaged":  # stored, as far as a lookup can see without loading it
            self._state = "missing"
            return
        state = survey(binding, call)
        if state.missing and binding.method.settings.remotes and not self._has_asked:
            self._has_asked = True
            binding.builds.fetch(call)
            state = survey(binding, call)
        self._missing = state.missing or list(state.impossible)
        self._state, self._reason = ("missing", state.reason) if self._missing else ("stored", "")
        # If it has tried, the result of an earlier start no longer counts.
        has_tried = self._trace_digests is not None or self._distinction
        if state.impossible and not self._piece.is_needed and not has_tried:
            self._state, self._reason = "impossible", next(iter(state.impossible.values()))

    def _work(self, binding: Binding, call: Call) -> str:
        """Return a digest of this work, independent of the rank: equal if ranks are to share a compile."""
        method = binding.method
        parts = [
            key_of(method.key, None).digest,
            work_text(call, call.spec(method.spec), method.parameters.dynamic),
            *self._missing,
        ]
        if method.backend.name not in _SHARED_BACKENDS:
            parts.append(f"rank {self._meeting.rank}")
        return hashlib.sha256("\n".join([*parts, *self._distinction]).encode()).hexdigest()[:24]

    def compile(self) -> dict[str, Any]:
        """Compile and store what is missing; returns the data that other ranks need to adopt it."""
        call = self._call()
        self._meeting.begin_work(f"compile `{self._method.name}`")
        with self._method.right.granted(self._meeting.seconds_left):
            try:
                with collected_code() as codes:
                    binding = self._method.prepare(call)
                    if binding is None:
                        raise CompileNotAgreed(self._method.name, "it can only run without a graph here")
                    with self._method.locked():
                        binding.complete(call)
            except GearcacheError as error:
                if self._piece.is_needed:
                    raise
                self._state, self._reason, self._failure = "out", str(error), (error, codes)
                return {"out": str(error)}
        ranks = binding.method.ranks
        return {
            "made": binding.builds.made,
            "ranks": [ranks.world_size, ranks.global_rank, ranks.tp_rank, ranks.pp_rank],
        }

    def adopt(self, built: dict[str, Any] | None) -> None:
        """Adopt what another rank has made, if this rank would make the same; else another round compiles it.

        `built` is the data from that rank, None if it sent nothing.
        """
        if built is not None and "out" in built and not self._piece.is_needed:
            self._state, self._reason = "out", built["out"]
            return
        artifacts = (
            [(digest, stored) for digest, stored in built["made"]] if built is not None and "made" in built else []
        )
        call = self._call()
        with self._method.locked():
            binding = self._method.current_binding(call)
            if artifacts and adopt(binding, call, Ranks(*built["ranks"]), artifacts, self.trace()):  # type: ignore[index]
                return
        self._distinction = (
            [*self.trace()] if not self._distinction else [*self._distinction, f"rank {self._meeting.rank}"]
        )

    def note(self) -> None:
        """Record that no graph can be made for a call, as this rank's trace has found, so the next start skips it.

        It is recorded in the entry, which other pieces make.
        """
        if self._state == "out" and self._failure is not None:
            call = self._call()
            with self._method.locked():
                self._method.current_binding(call).note_impossible(call, *self._failure)

    def trace(self) -> list[str]:
        """Return the digests of what this rank would build; empty if that fails, as its own compile then reports."""
        if self._trace_digests is None:
            call = self._call()
            with self._method.locked(), self._method.right.granted(self._meeting.seconds_left):
                binding = self._method.current_binding(call)
                spec = call.spec(binding.method.spec)
                missing = binding.builds.missing_gears(call)
                try:
                    with collected_code() as codes:
                        self._trace_digests = binding.builds.compiles.trace(
                            call, spec.only(missing) if missing else spec
                        )
                except GearcacheError as error:
                    logger.debug("%s: %s", self._method.name, error)
                    self._trace_digests, self._failure = [], (error, codes)
        return self._trace_digests

    def load(self) -> None:
        """Load what is stored, and nothing else."""
        if self._state in LEFT_OUT:
            return
        call = self._call()
        try:
            binding = self._method.prepare(call)
        except CompileNotAgreed as error:
            self._state, self._reason = "damaged", error.reason
            return
        if binding is None or not binding.serves(call):
            self._state, self._reason = "damaged", "it is stored, and cannot be loaded"

    def left_out(self) -> list[str]:
        """Return the declared sizes that no stored graph takes, although a graph could be made for them."""
        if not self._piece.is_needed or not self._method.parameters.input_signature:
            return []
        call = self._call()
        with self._method.locked():
            binding = self._method.current_binding(call)
            gaps = survey(binding, call).gaps if binding.method.spec.dynamic_axes else []
            calls = [self._method.call_of(*self._method.declared_call(gap.first)) for gap in gaps]
            return [gap.text for gap, gap_call in zip(gaps, calls, strict=True) if binding.impossible(gap_call) is None]

    def _call(self) -> Call:
        return self._method.call_of(self._piece.args, self._piece.kwargs)


class Team:
    """All pieces of one rank."""

    def __init__(self, pieces: Sequence[Piece], meeting: Meeting) -> None:
        self._meeting = meeting
        self._places = Places(meeting.identity, meeting.rank)
        self._piece_works = [PieceWork(piece, self._places, meeting) for piece in pieces]
        self._votes: list[PieceVote] = []

    def look_up(self) -> list[PieceVote]:
        """Return the states of all pieces."""
        self._votes = [work.look_up() for work in self._piece_works]
        return self._votes

    def compile(self, who: dict[str, int]) -> None:
        """Compile this rank's share, then wait for the others and adopt their results."""
        rank = self._meeting.rank
        lacking_states = ("missing", "impossible")
        pairs = zip(self._piece_works, self._votes, strict=True)
        missing = [(work, vote) for work, vote in pairs if vote.state in lacking_states and vote.share in who]
        own_works = {vote.share: work for work, vote in missing if who[vote.share] == rank}
        built: dict[str, Any] = {}
        try:
            for share, work in own_works.items():
                built[share] = work.compile()
                self._meeting.tell(f"{_BUILT}/{share}", built[share])
        finally:
            for share in own_works.keys() - built.keys():  # no rank must wait for a result that will not arrive
                self._meeting.tell(f"{_BUILT}/{share}", {})
        others = [(work, vote) for work, vote in missing if who[vote.share] != rank]
        for work, _ in others:  # the others compile in the meantime
            work.trace()
        for work, vote in others:
            if vote.share not in built:
                purpose = f"compiles `{vote.name}`"
                built[vote.share] = self._meeting.ask(f"{_BUILT}/{vote.share}", who[vote.share], purpose)
            work.adopt(built[vote.share])
        for work, _ in missing:
            work.note()

    def load(self) -> None:
        """Load all pieces."""
        for work in self._piece_works:
            work.load()

    def tell_what_is_left_out(self) -> None:
        """Log the declared sizes that no graph serves, because a trace holds for only part of them."""
        for work in self._piece_works:
            for text in work.left_out():
                logger.warning(
                    "%s: no graph takes the declared sizes %s, so a call of such is an error; `gearcache prewarm` "
                    "makes graphs of all parts of a range",
                    work.name,
                    sizes_name(text),
                )

    def close(self) -> None:
        """Remove all marks."""
        self._places.close()
