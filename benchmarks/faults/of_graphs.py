"""Faults of `ge_cache/` and of padded calls: what graphs give."""

from __future__ import annotations

from benchmarks.faults.fault import Fault

FAULTS = [
    Fault(
        "Results that are one object in eager are one object",
        "ge_cache/graphs/results.py",
        '            self.results.append(["result", equal_index] if is_again else form)\n',
        "            self.results.append(form)\n",
        ("tests/ge_cache/graphs/test_memory_of_results.py::test_a_view_that_is_two_results_is_one_object",),
    ),
    Fault(
        "A prewarm compiles its call, with its ints, for every gear",
        "ge_cache/graphs/number_inputs.py",
        "        self.takes_call = values == traced and _holds(values, [*mixed, *related])\n",
        "        self.takes_call = True\n",
        ("tests/prewarming/test_ints_beside_gears.py::test_a_server_compiles_nothing_for_the_call_at_any_gear",),
    ),
    Fault(
        "What a server refuses to pad is not ready",
        "src/gearcache/serving/miss/unserved.py",
        "            return self._unpadded(obstacle, rules, call, counted=False)\n",
        '            return ""\n',
        ("tests/prewarming/test_outside_gears.py::test_what_cannot_be_padded_is_not_ready",),
    ),
    Fault(
        "Padding never changes a result",
        "ge_cache/padding/rows.py",
        '    require_neutral(step, source, reduced, "reduces over")\n',
        "",
        (
            "tests/ge_cache/padding/test_padding.py::"
            "test_a_method_whose_rows_depend_on_each_other_is_refused_when_it_is_built",
        ),
    ),
    Fault(
        "Padding of a length without a mask is refused",
        "ge_cache/padding/rows.py",
        "    if not is_causal and not is_masked:\n",
        "    if mask is not None and not is_causal and not is_masked:\n",
        ("tests/ge_cache/padding/test_masks.py::test_what_a_mask_does_not_keep_apart_is_refused",),
    ),
    Fault(
        "A tensor that the method writes is written by a padded call",
        "guards/dispatch/padded_call.py",
        "                inputs[index].copy_(padded_inputs[index][regions[index]])\n",
        "                padded_inputs[index][regions[index]].copy_(inputs[index])\n",
        ("tests/cases/test_scenarios.py::test_scenarios_are_right_cold_and_relaunched[calls]",),
    ),
    Fault(
        "Results of compiled graphs have the strides of eager",
        "ge_cache/inductor/result_forms.py",
        " or _lies(value, order):\n",
        " or not _lies(value, order):\n",
        ("tests/ge_cache/inductor/test_compiled_results.py",),
    ),
    Fault(
        "A setting that bakes the values of weights into code is refused",
        "ge_cache/inductor/options.py",
        "        if value != fixed or type(value) is not type(fixed):\n",
        "        if type(value) is not type(fixed):\n",
        ("tests/test_options.py::test_settings_that_bake_weights_into_code_are_refused",),
    ),
]
