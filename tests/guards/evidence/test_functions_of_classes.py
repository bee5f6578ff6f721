"""A function that `exec` made is found by its class, also where it reads like another, or the collector is frozen."""

from __future__ import annotations

from tests.support.relaunch import run_python

PROGRAM = """
import dataclasses, functools, gc, json, sys, types

class Wrapping(type):
    '''Puts a function around each `__init__`, as the metaclass of transformers' outputs does.'''

    def __setattr__(cls, name, value):
        inside = value
        @functools.wraps(inside)
        def init(self, *arguments, **keywords):
            inside(self, *arguments, **keywords)
        super().__setattr__(name, init if name == "__init__" else value)

@dataclasses.dataclass
class Plain:
    x: int = 0

@dataclasses.dataclass
class Wrapped(metaclass=Wrapping):
    x: int = 0

from gearcache.guards.evidence.traced_files import changed_source, record_sources
if sys.argv[1] == "frozen":
    gc.freeze()
recorded = record_sources([Plain.__init__.__code__, Wrapped.__init__.__wrapped__.__code__])
names = [name for name, _ in recorded["functions"]]
before = changed_source(recorded)
Wrapped = dataclasses.make_dataclass("Wrapped", [("y", int, 1)])
print(json.dumps([names, before is None, changed_source(recorded).text]))
"""


def _found(state: str) -> object:
    return run_python(PROGRAM, state)


def test_generated_functions_are_recorded_by_the_name_of_their_class() -> None:
    expected = [["__main__:Plain.__init__", "__main__:Wrapped.__init__.__wrapped__"], True]
    for state in ("plain", "frozen"):
        names, is_current, text = _found(state)  # type: ignore[misc]
        assert [names, is_current] == expected
        assert "`__main__:Wrapped.__init__.__wrapped__` is gone" in text
