"""Faults of `src/gearcache/serving` and its telemetry: what becomes of a call."""

from __future__ import annotations

from benchmarks.faults.fault import Fault

_SERVING = "src/gearcache/serving"

FAULTS = [
    Fault(
        "A changed global or attribute is a miss",
        f"{_SERVING}/find/evidence.py",
        "        for part in (variant.sources, variant.evidence):\n",
        "        for part in (variant.sources,):\n",
        ("tests/serving/find/test_changes.py::test_a_change_is_seen_after_refresh_and_both_ways_are_kept",),
    ),
    Fault(
        "A weight that is replaced is followed",
        f"{_SERVING}/find/basis.py",
        "        return all(weights[name] is tensor for name, tensor in self.bound.items())\n",
        "        return weights.keys() >= self.bound.keys()\n",
        ("tests/serving/find/test_changes.py::test_functional_call_is_seen_and_its_end_too",),
    ),
    Fault(
        "A module that is not in an earlier state again gets no graph of that",
        f"{_SERVING}/find/bindings.py",
        "        return next((state for state in list(self._set_aside) if state.holds()), None)\n",
        "        return next(iter(list(self._set_aside)), None)\n",
        ("tests/serving/find/test_switched_modules.py",),
    ),
    Fault(
        "Graphs of two states of the module are not joined",
        f"{_SERVING}/find/basis.py",
        "    if not all(basis.watched.holds() for basis in [*bases, *bases]):\n        return None\n",
        "    if not all(basis.watched.holds() for basis in bases):\n        return bases[-1].watched\n",
        ("tests/serving/find/test_changes_meanwhile.py::test_graphs_of_two_states_do_not_answer_together",),
    ),
    Fault(
        "What another thread changes during a trace repeats it",
        "ge_cache/capture/capture.py",
        "    if others_run() and (place",
        "    if False and (place",
        ("tests/serving/find/test_changes_meanwhile.py",),
    ),
    Fault(
        "Weights that were replaced are let go of",
        f"{_SERVING}/find/bindings.py",
        " if state.has_weights(call.scope)]\n",
        "]\n",
        ("tests/serving/find/test_switched_modules.py::test_weights_that_were_replaced_are_not_kept",),
    ),
    Fault(
        '`on_miss="raise"` raises for a size outside all gears',
        f"{_SERVING}/miss/verdict.py",
        "        if raises:\n            return rules.outside(call)\n        if rules.on_miss",
        "        if rules.on_miss",
        ("tests/ge_cache/graphs/test_gears.py::test_a_shape_outside_all_gears_is_refused_by_default",),
    ),
    Fault(
        "A stance that forbids compiling is followed",
        f"{_SERVING}/miss/verdict.py",
        '    if call.stance == "eager_on_recompile":\n',
        '    if call.stance == "eager_on_recompile" and facts.missing:\n',
        ("tests/serving/call/test_stance.py::test_eager_on_recompile_uses_what_is_loaded_and_compiles_nothing",),
    ),
    Fault(
        "A fault of the cache leaves the call to the method and warns once",
        f"{_SERVING}/call/failures.py",
        "    if cause not in known_causes:\n",
        "    if cause:\n",
        ("tests/serving/call/test_odd_calls.py::test_an_unexpected_exception_is_ours_or_the_method_runs_uncached",),
    ),
    Fault(
        "An entry has at most `max_variants` variants",
        f"{_SERVING}/miss/builds.py",
        "        excess = len(present) + 1 - limit\n",
        "        excess = len(present) - limit\n",
        (
            "tests/serving/call/test_limits.py::"
            "test_calls_beyond_the_limit_of_variants_run_without_a_graph_and_the_others_stay",
        ),
    ),
    Fault(
        "A build that was refused is not tried at every call",
        f"{_SERVING}/miss/unserved.py",
        "            self._refused.add(call, error, time.monotonic() - begin)\n",
        "",
        ("tests/serving/miss/test_refused_again.py::test_the_second_like_call_is_not_traced",),
    ),
    Fault(
        "Of several that lack one graph at once, one compiles",
        f"{_SERVING}/miss/builds.py",
        "        return answer if answer.frame is not None or is_complete else present\n",
        "        return answer if answer.frame is not None and is_complete else present\n",
        ("tests/product/test_concurrency.py::test_threads_of_one_process_compile_one_key_once",),
    ),
    Fault(
        '`on_miss="background"` lets no call wait for a compile',
        f"{_SERVING}/miss/unserved.py",
        "        if self._is_background and not call.waits:\n",
        "        if self._is_background and not call.is_run:\n",
        ("tests/serving/miss/test_background.py::test_calls_run_without_a_graph_until_it_is_there",),
    ),
    Fault(
        "The weights of a module that is gone are given up",
        f"{_SERVING}/call/stance.py",
        "_followers: weakref.WeakSet[Any] = weakref.WeakSet()\n",
        "_followers: set[Any] = set()\n",
        ("tests/serving/find/test_unload.py::test_the_memory_of_the_weights_goes_with_the_module",),
    ),
    Fault(
        "The calls of a gear are counted beyond the life of its model",
        "src/gearcache/telemetry/gear_use.py",
        "        _add(_collected, method, graphs)\n",
        "        pass\n",
        ("tests/test_events.py::test_calls_per_gear_survive_a_refresh_and_the_model",),
    ),
    Fault(
        "A call that differs from its declaration is refused",
        f"{_SERVING}/find/bindings.py",
        "        declared.inputs.check(call)\n",
        "",
        ("tests/serving/call/test_input_signature.py::test_another_call_is_refused_before_anything_is_compiled",),
    ),
]
