"""Faults of `guards/`: what a lookup and each call compare."""

from __future__ import annotations

from benchmarks.faults.fault import Fault

FAULTS = [
    Fault(
        "A bool is another constant than an int",
        "guards/evidence/constants.py",
        '        return ["bool", value]  # tagged',
        "        return value  # tagged",
        ("tests/guards/evidence/test_constants.py::test_no_two_different_constants_pass_each_other_s_check",),
    ),
    Fault(
        "An argument of another dtype is not a hit",
        "guards/dispatch/inputs.py",
        "    if tensor.dtype != stored.dtype:\n",
        "    if tensor.dtype.is_complex != stored.dtype.is_complex:\n",
        (
            "tests/guards/dispatch/test_inputs.py::test_each_difference_is_named_and_fails_the_check",
            "tests/serving/miss/test_strides.py::test_another_dtype_is_another_variant_where_misses_compile",
        ),
    ),
    Fault(
        "An argument of other strides is not a hit",
        "guards/dispatch/inputs.py",
        "expected != actual for expected, actual in zip(strides, tensor.stride(), strict=True)",
        "expected != actual for expected, actual in zip(strides, strides, strict=True)",
        (
            "tests/guards/dispatch/test_inputs.py::test_each_difference_is_named_and_fails_the_check",
            "tests/serving/miss/test_strides.py::test_other_strides_are_another_variant",
        ),
    ),
    Fault(
        "An argument that requires grad is not a hit where autograd is on",
        "guards/dispatch/tensors/tensor_checks.py",
        "        alternatives.append(_Alternative(kind, check, requires_grad, in_inference_mode))\n",
        "        alternatives.append(_Alternative(kind, check, False, in_inference_mode))\n",
        ("tests/serving/miss/test_refusals.py::test_an_input_that_requires_grad_is_refused_with_grad_mode_on",),
    ),
    Fault(
        "The next call sees a new hook",
        "guards/watch/facts.py",
        "        if any(child == empty for _, children in nodes",
        "        if not nodes and any(child == empty for _, children in nodes",
        (
            "tests/attaching/test_hooks.py::test_hooks_of_all_modules_run_for_those_inside_as_well",
            "tests/attaching/test_hooks.py::test_a_hook_inside_that_forms_no_graph_is_refused_by_name",
        ),
    ),
    Fault(
        "The next call sees another class of an object",
        "guards/watch/objects.py",
        '            self._add("object", value)\n',
        "            pass\n",
        ("tests/serving/find/test_changes.py::test_the_next_call_sees_every_change_and_its_end",),
    ),
    Fault(
        "What is watched is what was compared",
        "guards/evidence/tree.py",
        "            self._watch.add_node(value, number)\n",
        "            (lambda: None)()\n",
        ("tests/serving/find/test_changes_meanwhile.py",),
    ),
    Fault(
        "Other code of a called function is a miss",
        "guards/evidence/code.py",
        "        code.co_code,\n",
        "",
        ("tests/guards/evidence/test_code.py::test_anything_else_changes_the_digest",),
    ),
    Fault(
        "Another member of a class is a miss",
        "guards/evidence/members.py",
        "            if members_now != members_then:\n",
        "            if len(members_now) != len(members_then):\n",
        ("tests/guards/evidence/test_members.py::test_a_change_of_a_class_counts_where_a_trace_may_have_seen_it",),
    ),
    Fault(
        "An edit of a source file is a miss where the trace went through it",
        "guards/evidence/traced_files.py",
        "        if _digest(path) != digest:\n",
        "        if not _digest(path):\n",
        ("tests/guards/evidence/test_traced_files.py",),
    ),
    Fault(
        "A graph serves the ints for which its conditions hold",
        "guards/evidence/relations.py",
        '    return " and ".join([*kinds, *(f"({text})" for text in texts)])\n',
        '    return " and ".join([*kinds, *(f"({text})" for text in texts[1:])])\n',
        ("tests/serving/test_what_varies.py::test_odd_ints_are_served_in_any_order",),
    ),
    Fault(
        "A function mode sees what the method calls",
        "guards/dispatch/function.py",
        "        conditions.append(f\"not {writer.bind(has_function_mode, 'has_mode')}()\")",
        "        writer.bind(has_function_mode, 'has_mode')",
        ("tests/serving/miss/test_refusals.py::test_under_a_torch_function_mode_the_method_itself_runs",),
    ),
    Fault(
        "A graph serves calls under the global state of its trace alone",
        "guards/dispatch/function.py",
        "        conditions.append(f\"({' or '.join(holds)})\")\n",
        "",
        ("tests/serving/find/test_instances.py::test_a_graph_serves_calls_under_the_default_dtype_of_its_trace_alone",),
    ),
    Fault(
        "An inference tensor that the graph writes is refused outside of inference mode",
        "guards/dispatch/tensors/tensor_checks.py",
        "        in_inference_mode = is_written and torch.is_inference_mode_enabled()\n",
        "        in_inference_mode = is_written and gear.in_inference_mode\n",
        (
            "tests/guards/dispatch/tensors/test_tensor_checks.py::"
            "test_no_inference_tensor_that_is_written_passes_outside_of_inference_mode",
        ),
    ),
    Fault(
        "Inputs that overlap a written one are refused",
        "guards/dispatch/tensors/memory.py",
        "            if (index in writes or other in writes) and share_memory(tensors[index], tensors[other]):\n",
        "            if index in writes and share_memory(tensors[index], tensors[other]):\n",
        ("tests/guards/dispatch/tensors/test_memory_overlap.py::test_overlap_with_a_written_tensor_is_found",),
    ),
]
