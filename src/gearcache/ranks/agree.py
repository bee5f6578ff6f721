"""`gearcache.agree`: makes sure that all ranks of a job serve the same graphs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from gearcache.errors import OptionError
from gearcache.guards.evidence.names import a_type
from gearcache.ranks.job import Job, present_job
from gearcache.ranks.meeting import Meeting
from gearcache.ranks.messages import Stopped
from gearcache.ranks.model import Model
from gearcache.ranks.part import RankPart, told

_TIMEOUT = 600.0
#: Seconds: 30 days. Locks and stores accept at most about 292 years, and no number beyond floats.
_LONGEST = 30 * 86400
_MOST_SHOWN = 40


#: The lock of the running call.
_running = threading.Lock()


def _after_fork() -> None:
    """Give a process that is forked in the meantime its own lock."""
    global _running
    _running = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def agree(model: Any, timeout: float = _TIMEOUT, *, warm: Callable[[], object] | None = None) -> None:
    """Make sure that every rank of the job has loaded the declared gears, and that no rank compiles alone from then on.

    Call it once on every rank, after `torch.distributed.init_process_group` and before the first collective. The
    ranks meet over the store of the job, never in a collective. They look up what is stored. Of the ranks that lack the
    same, one compiles, and the others adopt the result if they would have compiled the same. Then all load. Afterwards
    a call that no loaded graph serves is an error (`CompileNotAgreed`), or runs eagerly as `on_miss` says, until you
    call `agree` again.

    - `model`: a module with cached methods or attached parts, a cached method, what `attach` returns, or a list, tuple
      or dict of these. The ranks agree on what `.warm()` compiles: the gears of methods with declared arguments.
    - `timeout`: seconds after which `agree` ends on every rank, at most 30 days, whatever happens to one of them; a few
      more if rank 0 or the store is gone.
    - `warm`: a function that calls `.warm(...)` of methods whose arguments are not declared.

    With one process, without a process group, and in a process forked from a rank, it does nothing, except that methods
    of an earlier agreement may compile again.
    Raises `RanksDisagree` (`.rank`, `.reason`) on all ranks if one of them cannot do its part, dies, or does not come;
    `OptionError` or `TypeError` for an invalid parameter, once the other ranks know of it (they raise
    `RanksDisagree`); `OptionError` also while another thread of this process is in `agree`, and in a process that
    `warm` has forked.
    """
    job, lock = present_job(), _running
    if not lock.acquire(blocking=False):
        error = OptionError("agree: it is running in this process already; call it from one thread, and not in `warm`")
        if job is not None:  # the others pair their calls with this one
            _leave(job, error)
        raise error
    try:
        problem = _problem(timeout, warm)
        if job is not None:
            _agree(job, model, timeout, warm, problem)
        elif problem is not None:
            raise problem
        else:
            Model(model).give_back()
    finally:
        lock.release()


def _problem(timeout: Any, warm: Any) -> OptionError | None:
    """Return what is wrong with the parameters."""
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= _LONGEST:
        return OptionError(
            f"agree: timeout is {_shown(timeout)}; it must be a number of seconds above 0, at most {_LONGEST} (30 days)"
        )
    if warm is not None and not callable(warm):
        return OptionError(f"agree: warm is {_shown(warm)}; it must be a function that calls `.warm(...)`, or None")
    return None


def _shown(value: Any) -> str:
    """Return a value for an error message: an object's `repr` may fail, and a number may be too long for Python."""
    try:
        text = repr(value)
    except Exception:
        return a_type(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _leave(job: Job, error: OptionError) -> None:
    meeting = Meeting(job.next_meeting(), job.rank, job.world, _TIMEOUT)
    meeting.leave(told(error))
    meeting.close()


def _agree(
    job: Job,
    model: Any,
    timeout: float,
    warm: Callable[[], object] | None,
    problem: OptionError | None,
) -> None:
    # A rank with invalid parameters takes part too: the others would wait for it, and be out of step afterwards.
    part = RankPart(job, _TIMEOUT if problem else timeout, problem)
    try:
        part.meet(model, warm)
    except Stopped as stop:
        part.end(stop)
    except BaseException as error:
        part.meeting.leave(told(error))
        raise
    finally:
        part.close()
