"""Shrinks a failing case: leaves out steps, statements, parameters and parts of expressions while it still fails.

Each attempt runs in a forked process, so that it leaves nothing behind.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.fuzz.case import ARGUMENTS, Case, Failure, Step

#: Takes a case; returns its failure, or None.
Trial = Callable[[Case], "Failure | None"]


def forked_trial(case: Case) -> Failure | None:
    """Run all phases of a case, each in a fork of this process."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number in range(len(case.phases)):
            failure, goes_on = _forked_phase(case, number, Path(folder))
            if failure is not None or not goes_on:
                return failure
    return None


def fresh_trial(case: Case) -> Failure | None:
    """Run all phases of a case, each in its own interpreter, where hashes of texts differ."""
    from benchmarks.fuzz.replay import replayed

    return replayed(case)


def _is(found: Failure | None, failure: Failure) -> bool:
    return found is not None and found.signature() == failure.signature()


def _forked_phase(case: Case, number: int, folder: Path) -> tuple[Failure | None, bool]:
    from benchmarks.fuzz.run_case import run_phase

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            report = run_phase(case, number, folder)
            os.write(write, json.dumps(report.to_plain()).encode())
        finally:
            os._exit(0)
    os.close(write)
    text = b""
    while chunk := os.read(read, 1 << 16):
        text += chunk
    os.close(read)
    _, status = os.waitpid(child, 0)
    if not text:
        return Failure("crash", number, -1, "", f"exit {-os.WTERMSIG(status) if os.WIFSIGNALED(status) else 1}"), False
    from benchmarks.fuzz.case import Report

    report = Report.from_plain(json.loads(text))
    return report.failure, not report.invalid


def shrink(case: Case, failure: Failure, trial: Trial, seconds: float = 60.0) -> tuple[Case, Failure]:
    """Return the smallest case found that fails in the same way, and its failure."""
    begin = time.perf_counter()
    best, last = case, failure
    changed = True
    while changed:
        changed = False
        for candidates in (_shorter, _fewer_steps, _fewer_statements, _fewer_parameters, _simpler):
            again = True
            while again:
                again = False
                for candidate in candidates(best, last):
                    if time.perf_counter() - begin > seconds:
                        return best, last
                    found = trial(candidate)
                    if found is not None and _is(found, failure):
                        best, last = candidate, found
                        changed = again = True
                        break
    return best, last


def _shorter(case: Case, failure: Failure) -> Iterator[Case]:
    """Cut after the failing step, and leave out phases."""
    if len(case.phases) > failure.phase + 1:
        yield replace(case, phases=case.phases[: failure.phase + 1])
    steps = case.phases[failure.phase].steps
    if 0 <= failure.step < len(steps) - 1:
        yield case.with_phase(failure.phase, steps=steps[: failure.step + 1])
    if len(case.phases) > 1:
        yield replace(case, phases=case.phases[1:])
        yield replace(case, phases=case.phases[:1])


def _fewer_steps(case: Case, failure: Failure) -> Iterator[Case]:
    for number, phase in enumerate(case.phases):
        calls = [index for index, step in enumerate(phase.steps) if step.label == "call"]
        for index in reversed(calls[:-1] if number == len(case.phases) - 1 else calls):
            first = index - 1 if phase.steps[index - 1].label == ARGUMENTS else index
            yield case.with_phase(number, steps=phase.steps[:first] + phase.steps[index + 1 :])
            yield case.with_phase(number, steps=phase.steps[:index] + phase.steps[index + 1 :])
        for index, step in enumerate(phase.steps):
            if step.label not in ("build", "call"):
                yield case.with_phase(number, steps=phase.steps[:index] + phase.steps[index + 1 :])


def _fewer_statements(case: Case, failure: Failure) -> Iterator[Case]:
    """Leave out statements of the file, first many at once and then one by one."""
    texts = list(dict.fromkeys(text for phase in case.phases for text in _statements(phase.source)))
    size = len(texts)
    while size >= 1:
        for start in range(0, len(texts), size):
            chosen = set(texts[start : start + size])
            yield _with_sources(case, lambda tree, chosen=chosen: _without(tree, chosen))  # type: ignore[misc]
        size //= 2
    for number, phase in enumerate(case.phases):
        for index, step in enumerate(phase.steps):
            for text in _statements(step.text):
                yield _with_step(case, number, index, lambda tree, text=text: _without(tree, {text}))  # type: ignore[misc]


def _statements(source: str) -> list[str]:
    tree = ast.parse(source)
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.ClassDef) and node.name == "Model")
    ]


def _without(tree: ast.Module, texts: set[str]) -> ast.Module:
    class Leave(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST:
            super().generic_visit(node)
            if getattr(node, "body", None) == []:
                node.body = [ast.Pass()]  # type: ignore[attr-defined]
            return node

        def visit(self, node: ast.AST) -> ast.AST | None:
            if isinstance(node, ast.stmt) and ast.unparse(node) in texts:
                return None
            return super().visit(node)

    return Leave().visit(tree)


def _fewer_parameters(case: Case, failure: Failure) -> Iterator[Case]:
    """Leave out a parameter of the method, and the values that calls pass for it."""
    for position, name in enumerate(_parameters(case.phases[0].source)):

        def without(tree: ast.Module, name: str = name) -> ast.Module:
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and any(item.arg == name for item in _all(node.args)):
                    _drop(node.args, name)
            return tree

        def uncalled(tree: ast.Module, name: str = name, position: int = position) -> ast.Module:
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run":
                    node.keywords = [item for item in node.keywords if item.arg != name]
                    if len(node.args) > position + 1:
                        del node.args[position + 1]
            return tree

        changed = _with_sources(case, without)
        for number, phase in enumerate(changed.phases):
            for index, step in enumerate(phase.steps):
                if step.label == "call":
                    changed = _with_step(changed, number, index, uncalled)
        yield changed


def _parameters(source: str) -> list[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            if methods:
                return [item.arg for item in _all(methods[-1].args)][1:]
    return []


def _all(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _drop(arguments: ast.arguments, name: str) -> None:
    for index, item in enumerate(arguments.args):
        if item.arg == name:
            back = len(arguments.args) - index
            if back <= len(arguments.defaults):
                del arguments.defaults[-back]
            del arguments.args[index]
            return
    for index, item in enumerate(arguments.kwonlyargs):
        if item.arg == name:
            del arguments.kwonlyargs[index]
            del arguments.kw_defaults[index]
            return


def _simpler(case: Case, failure: Failure) -> Iterator[Case]:
    """Replace an expression by a part of it, and `with` statements by their bodies."""
    for source in dict.fromkeys(phase.source for phase in case.phases):
        for count in range(_replaceable(ast.parse(source))):
            for variant in range(3):
                yield _with_sources(case, lambda tree, c=count, v=variant: _replaced(tree, c, v))  # type: ignore[misc]
    for number, phase in enumerate(case.phases):
        for index, step in enumerate(phase.steps):
            tree = ast.parse(step.text)
            for count in range(_replaceable(tree)):
                yield _with_step(case, number, index, lambda tree, c=count: _replaced(tree, c, 0))  # type: ignore[misc]
            if any(isinstance(node, ast.With) for node in tree.body):
                yield _with_step(case, number, index, _without_with)


def _without_with(tree: ast.Module) -> ast.Module:
    tree.body = [line for node in tree.body for line in (node.body if isinstance(node, ast.With) else [node])]
    return tree


def _parts(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Call):
        own = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*node.args, *own][:3]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [item for item in node.elts if not isinstance(item, ast.Starred)][:3]
    if isinstance(node, ast.Dict):
        return [item for item in node.values if item is not None][:3]
    return []


def _replaceable(tree: ast.Module) -> int:
    return sum(bool(_parts(node)) for node in ast.walk(tree))


def _replaced(tree: ast.Module, count: int, variant: int) -> ast.Module:
    found = [node for node in ast.walk(tree) if _parts(node)]
    if count >= len(found) or variant >= len(_parts(found[count])):
        return tree
    target, part = found[count], _parts(found[count])[variant]

    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return part if node is target else super().visit(node)

    return Put().visit(tree)


def _with_sources(case: Case, change: Callable[[ast.Module], ast.Module]) -> Case:
    phases = []
    for phase in case.phases:
        tree = ast.fix_missing_locations(change(ast.parse(phase.source)))
        phases.append(replace(phase, source=ast.unparse(tree) + "\n"))
    return replace(case, phases=tuple(phases))


def _with_step(case: Case, number: int, index: int, change: Callable[[ast.Module], ast.Module]) -> Case:
    steps = list(case.phases[number].steps)
    tree = ast.fix_missing_locations(change(ast.parse(steps[index].text)))
    steps[index] = Step(steps[index].label, ast.unparse(tree) or "pass", steps[index].scope)
    return case.with_phase(number, steps=tuple(steps))


def main(ways: Sequence[Trial] = (forked_trial, fresh_trial)) -> None:
    """Serve `campaign.py`: reads a line with a case and a failure, prints a line with the shrunk case and failure."""
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch._dynamo  # noqa: F401 - once, before the forks

    import gearcache.building.build  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        case, failure = Case.from_text(order["case"]), Failure(**order["failure"])
        trial = next((way for way in ways if _is(way(case), failure)), None)
        refreshed: Failure | None = failure
        if trial is not None:
            case, failure = shrink(case, failure, trial, order["seconds"])
            refreshed = trial(replace(case, refreshed=True))
        print(
            json.dumps(
                {
                    "case": case.to_text(),
                    "failure": failure.__dict__,
                    "alone": trial is not None,
                    "heals": refreshed is None,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
