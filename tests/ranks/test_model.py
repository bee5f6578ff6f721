"""No method of a model compiles by itself after an agreement, wherever the model keeps it."""

from __future__ import annotations

from pathlib import Path

from tests.support.kept_methods import FAR, NEAR
from tests.support.rank_actors import Job, run_job


def test_methods_in_containers_take_part_and_those_in_other_objects_may_not_compile(tmp_path: Path) -> None:
    for report in run_job(Job(tmp_path, "kept_methods.kept")):
        assert {where: report.get(where) for where in NEAR} == {where: [True, "served", True] for where in NEAR}
        refused = [True, "CompileNotAgreed", True]
        assert {where: report.get(where) for where in FAR} == dict.fromkeys(FAR, refused)


def test_a_decorated_method_that_is_not_declared_is_named(tmp_path: Path) -> None:
    for report in run_job(Job(tmp_path, "kept_methods.undeclared_in_class")):
        assert "nobody knows what calls of `Undeclared.encode` look like" in report["error"]
