"""Faults of `cache/`: what is stored, who may have written it, and what keys are made of."""

from __future__ import annotations

from benchmarks.faults.fault import Fault

FAULTS = [
    Fault(
        "A damaged manifest is never served",
        "cache/manifest.py",
        "    if sha256(body).digest() != digest:\n",
        "    if len(sha256(body).digest()) != len(digest):\n",
        ("tests/cache/test_manifest.py::test_a_flip_of_any_byte_is_found",),
    ),
    Fault(
        "A damaged blob is never loaded",
        "cache/files/trust.py",
        "    actual_digest = descriptor_digest(descriptor)\n    if actual_digest != digest:\n",
        "    actual_digest = descriptor_digest(descriptor)\n    if not actual_digest:\n",
        ("tests/cache/test_store.py::test_a_corrupt_blob_is_quarantined_and_only_it",),
    ),
    Fault(
        "An unsigned entry is refused where a key is set",
        "cache/manifest.py",
        "    if signer is not None and not signer.has_signed(data):\n",
        "    if signer is not None and not signer.signature(data):\n",
        ("tests/cache/signatures/test_signature.py::test_what_is_not_signed_with_the_key_is_a_miss_and_is_replaced",),
    ),
    Fault(
        "A folder or file that others may write is refused",
        "cache/files/trust.py",
        "_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH\n",
        "_OTHERS_WRITE = stat.S_IWOTH\n",
        (
            "tests/cache/files/test_trust.py::test_a_file_that_others_can_write_is_not_trusted",
            "tests/cache/test_folders.py::test_a_folder_that_others_can_write_is_refused",
        ),
    ),
    Fault(
        "A worker compiles in the state of its process",
        "ge_cache/workers/program.py",
        "        set_settings(job.settings)\n",
        "",
        ("tests/ge_cache/inductor/test_compiled_results.py::test_a_worker_compiles_in_the_state_of_its_process",),
    ),
    Fault(
        "A weight outside of the modules is compared by its layout",
        "ge_cache/capture/capture.py",
        "    checks += layout_checks(",
        "    layout_checks(",
        ("tests/serving/find/test_changes.py::test_a_weight_outside_of_the_modules_is_compared_by_its_layout",),
    ),
    Fault(
        "Another number of threads is another key",
        "src/gearcache/torch_state.py",
        '        "threads": torch.get_num_threads(),\n',
        "",
        ("tests/commands/checks/test_ready.py::test_entries_for_another_number_of_threads_say_how_to_have_it",),
    ),
    Fault(
        "Another option is another key",
        "cache/keys/fingerprint.py",
        '        ("options", dict(options)),\n',
        '        ("options", sorted(options)),\n',
        ("tests/telemetry/test_explain.py::test_an_option_is_told_as_a_component_of_the_key",),
    ),
    Fault(
        "Prune leaves an entry that a process uses",
        "cache/locks/use.py",
        "            alone = False\n",
        "            alone = True\n",
        ("tests/cache/admin/test_catalog.py::test_a_used_entry_stays_and_others_go_in_its_place",),
    ),
    Fault(
        "A command that deletes has the store for itself",
        "cache/remove.py",
        "    with store_lock(layout.store_lock, patience, alone=True):\n",
        "    with store_lock(layout.store_lock, patience, alone=False):\n",
        (
            "tests/product/test_concurrency.py::test_a_blob_is_not_collected_between_its_writing_and_its_publishing",
            "tests/product/test_concurrency.py::test_a_blob_of_an_entry_that_goes_stays_for_one_that_comes",
        ),
    ),
    Fault(
        "Siblings compare what the trace reached",
        "cache/keys/module_parts.py",
        '            if our_rows != _tensors(cast("list[str]", theirs[kind]), their_classes, reached):\n',
        '            if len(our_rows) != len(_tensors(cast("list[str]", theirs[kind]), their_classes, reached)):\n',
        ("tests/cache/keys/test_module_parts.py::test_what_was_reached_has_to_be_equal",),
    ),
    Fault(
        "Autocast is part of the key",
        "src/gearcache/torch_state.py",
        "return [kind for kind in kinds if",
        "return [kind for kind in kinds[1:] if",
        ("tests/serving/find/test_instances.py::test_autocast_may_be_toggled_between_calls",),
    ),
    Fault(
        "The manifest of another key is never served",
        "cache/manifest.py",
        "    if manifest.key_digest != key_digest:\n",
        "    if not manifest.key_digest:\n",
        ("tests/cache/test_store.py::test_a_manifest_of_another_key_is_corrupt",),
    ),
    Fault(
        "A blob that an entry needs is not collected",
        "cache/admin/collect.py",
        " and path.name not in needed_digests]",
        "]",
        ("tests/cache/admin/test_catalog.py::test_collecting_removes_what_no_entry_needs_and_nothing_else",),
    ),
]
