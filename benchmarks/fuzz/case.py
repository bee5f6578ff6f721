"""One case: the text of a module, and what two processes do with it, step by step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

#: Steps with this mark change the process and not one of the two worlds: they run once.
PROCESS = "process"
#: The label of steps that make the arguments of the following call.
ARGUMENTS = "arguments"


@dataclass(frozen=True)
class Step:
    """A few lines of code. `label` is the kind of call or edit, `scope` is the namespace that it changes."""

    label: str
    text: str
    scope: str = "world"


@dataclass(frozen=True)
class Phase:
    """The work of one process: it imports `source` and executes the steps."""

    source: str
    steps: tuple[Step, ...]
    #: Whether the first call has to find what the previous process left, if it was served there.
    hits: bool = False


@dataclass(frozen=True)
class Case:
    """Everything that a run depends on, besides the code of gearcache and torch. `features` were drawn at random."""

    name: str
    seed: str
    backend: str
    phases: tuple[Phase, ...]
    features: tuple[str, ...] = ()
    #: The lines that each feature added.
    origins: dict[str, list[str]] = field(default_factory=dict)
    #: Whether `.refresh()` is called before each call: finds edits that are seen only after it.
    refreshed: bool = False

    def edits(self) -> tuple[str, ...]:
        """Return the kinds of edits, in order."""
        labels = [step.label for phase in self.phases for step in phase.steps]
        return tuple(dict.fromkeys(label for label in labels if label not in ("build", "call", ARGUMENTS)))

    def present(self) -> tuple[str, ...]:
        """Return the features that still have a line."""
        lines = {line.strip() for phase in self.phases for line in phase.source.splitlines()}
        return tuple(name for name, own in self.origins.items() if any(line in lines for line in own if line != "pass"))

    def labels(self) -> tuple[str, ...]:
        """Return the features and the kinds of edits."""
        return tuple(dict.fromkeys([*self.features, *self.edits()]))

    def to_text(self) -> str:
        """Return the case as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Case:
        """Return the case that `to_text` wrote."""
        plain = json.loads(text)
        plain["phases"] = tuple(
            Phase(phase["source"], tuple(Step(**step) for step in phase["steps"]), phase.get("hits", False))
            for phase in plain["phases"]
        )
        plain["features"] = tuple(plain["features"])
        return Case(**plain)

    def with_phase(self, number: int, **changes: Any) -> Case:
        """Return the case with one phase changed."""
        phases = list(self.phases)
        phases[number] = replace(phases[number], **changes)
        return replace(self, phases=tuple(phases))


@dataclass
class Failure:
    """A difference between the worlds, or an error that is not ours."""

    kind: str
    phase: int
    step: int
    label: str
    detail: str
    #: For an error: where in gearcache it was raised.
    where: str = ""
    text: str = ""

    def signature(self) -> str:
        """Return a value that is equal for similar findings."""
        return " | ".join(filter(None, [self.kind, self.detail, self.where]))


@dataclass
class Report:
    """The result of one phase of a case."""

    calls: int = 0
    #: Calls that raised in both worlds.
    raised: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    #: Why the case is invalid: the plain method itself cannot do what it says.
    invalid: str = ""
    known: str = ""
    seconds: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Report:
        """Return the report that `to_plain` wrote."""
        failure = plain.pop("failure")
        return Report(**plain, failure=Failure(**failure) if failure else None)
