"""No method of a model compiles by itself after an agreement, wherever the model keeps it."""

from __future__ import annotations

from pathlib import Path

from tests.support.kept_methods import FAR, NEAR
from tests.support.rank_actors import Job, run_job


def test_methods_in_containers_take_part_and_those_in_other_objects_may_not_compile(tmp_path: Path) -> None:
    for report in run_job(Job(tmp_path, "kept_methods.kept")):
        assert report["agreed"] is True
        assert {where: report[where] for where in NEAR} == {where: ["served", True] for where in NEAR}
        assert {where: report[where] for where in FAR} == {where: ["CompileNotAgreed", True] for where in FAR}
