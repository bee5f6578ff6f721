"""Formats the progress of a build as one line for a terminal; the current step and its duration are cut last."""

from __future__ import annotations

from msgspec import Struct

#: Labels for the stages of compilers. Stages without a gear occur once for a worker, or for a host.
STAGES = {
    "trace": "tracing",
    "start": "starting a compile worker",
    "import": "importing Inductor",
    "headers": "compiling C++ runtime headers, once per host",
    "begin": "reading",
    "search": "finding repeats in",
    "lower": "generating code for",
    "compile": "compiling",
}
SHARED_STAGES = ("trace", "start", "import", "headers")
#: The share of a gear's work that is done when a stage begins: a guess, so that the bar moves within a gear.
SHARES = {"start": 0.02, "import": 0.05, "headers": 0.1, "begin": 0.2, "search": 0.2, "lower": 0.3, "compile": 0.5}
_BAR, _LEAST_BAR, _LEAST_METHOD, _LEAST_GEAR = 16, 6, 12, 32


class State(Struct, frozen=True):
    """The current step, its gear (empty: for all), its duration, and the number of other gears in progress."""

    what: str
    gear: str = ""
    seconds: float | None = None
    others: int = 0

    def text(self, room: int = 10_000) -> str:
        """Return it in at most this many characters; the time is kept, and the step takes precedence over the gear."""
        others = f", and {self.others} more" if self.others else ""
        end = self._end
        for tail in (end + others, end):
            gear = f" {self.gear}" if self.gear else ""
            if len(self.what + gear + tail) <= room:
                return self.what + gear + tail
        return _cut(self.what + gear, max(0, room - len(end))) + (end if room > len(end) else "")

    @property
    def least(self) -> int:
        """The number of characters it takes with the gear cut as far as possible."""
        gear = min(len(self.gear), _LEAST_GEAR) + 1 if self.gear else 0
        # With room for three digits, so that the bar does not get shorter with the time.
        return len(self.what) + gear + max(len(self._end), len(": 999 s") if self._end else 0)

    @property
    def _end(self) -> str:
        return "" if self.seconds is None else f": {int(self.seconds)} s"


class ProgressLine(Struct, frozen=True):
    """The parts of a line; `bar` is the number of its characters that are done and that are not."""

    method: str
    bar: tuple[int, int]
    count: str
    clock: str
    state: str


def fitted(width: int, method: str, share: float, count: str, seconds: float, state: State) -> ProgressLine:
    """Return the parts fitted to a width: the bar is shortened first and dropped, then the method, then the state.

    `share` is the share of all the work that is done, from 0 to 1; `count` is how many gears of how many.
    """
    clock = f"{int(seconds) // 60}:{int(seconds) % 60:02}"
    room = width - len(count) - len(clock) - 3  # spaces between the parts
    least = state.least
    bar = min(_BAR, room - len(method) - least - 1)
    bar = bar if bar >= _LEAST_BAR else 0
    room -= bar + 1 if bar else 0
    method = _cut(method, max(_LEAST_METHOD, room - least))
    done = round(bar * min(1.0, max(0.0, share)))
    return ProgressLine(method, (done, bar - done), count, clock, state.text(max(0, room - len(method))))


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most else ""
