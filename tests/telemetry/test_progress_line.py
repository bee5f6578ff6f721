"""The line of a build, in any width."""

from __future__ import annotations

import pytest

from gearcache.telemetry.progress_line import STAGES, State, fitted


def drawn(width: int, method: str, share: float, state: State) -> str:
    line = fitted(width, method, share, "1/4", 52.0, state)
    done, rest = line.bar
    bar = f" {'=' * done}{'-' * rest}" if done + rest else ""
    return f"{line.method}{bar} {line.count} {line.clock} {line.state}"


HEADERS = State(STAGES["headers"], "", 14.2)
GEAR = State("compiling", "ids.size(0)=2", 3.0)
TWO = State("compiling", "ids.size(0)=2, ids.size(1)=16", 3.0, 1)


@pytest.mark.parametrize(
    ("width", "method", "state", "line"),
    [
        pytest.param(
            *(79, "LlamaForCausalLM.forward", HEADERS),
            "LlamaForCausalLM.… 1/4 0:52 compiling C++ runtime headers, once per host: 14 s",
            id="the-method-is-cut-before-the-state",
        ),
        pytest.param(
            *(79, "LlamaForCausalLM.forward", GEAR),
            "LlamaForCausalLM.forward ======-------- 1/4 0:52 compiling ids.size(0)=2: 3 s",
            id="the-bar-gets-shorter-first",
        ),
        pytest.param(
            *(129, "Model.decode", TWO),
            "Model.decode ======---------- 1/4 0:52 compiling ids.size(0)=2, ids.size(1)=16: 3 s, and 1 more",
            id="others-are-told",
        ),
        pytest.param(
            *(60, "Model.decode", TWO),
            "Model.decode 1/4 0:52 compiling ids.size(0)=2, ids.siz…: 3 s",
            id="the-time-stays",
        ),
    ],
)
def test_the_line_is_cut_where_it_tells_least(width: int, method: str, state: State, line: str) -> None:
    assert drawn(width, method, 0.4, state) == line
