"""Faults of what goes from host to host: bundles, tiers, signatures, ranks."""

from __future__ import annotations

from benchmarks.faults.fault import Fault

FAULTS = [
    Fault(
        "A bundle with a path outside of its entry is refused",
        "cache/admin/packed/bundle.py",
        '        if name != expected or manifest.name != f"{label}-{manifest.key_digest}":\n',
        '        if manifest.name != f"{label}-{manifest.key_digest}":\n',
        ("tests/cache/admin/packed/test_bundle.py::test_a_hostile_or_damaged_bundle_writes_nothing_but_whole_blobs",),
    ),
    Fault(
        "A blob of a tier is verified before it is used",
        "cache/remote/fetch.py",
        "        if (actual_digest := sha256(data).hexdigest()) != digest:\n",
        "        if len(actual_digest := sha256(data).hexdigest()) != len(digest):\n",
        (
            "tests/serving/fleet/test_tiers.py::test_a_damaged_blob_is_compiled_again_and_replaced",
            "tests/cache/remote/admin/test_moved_entries.py::test_a_blob_comes_from_the_next_tier_where_the_first_has_it_damaged",
        ),
    ),
    Fault(
        "A manifest of a tier serves the entry to which it belongs",
        "cache/remote/lookup.py",
        '    if (manifest.key_digest, manifest.name) != (entry.digest, f"{entry.label}-{entry.digest}"):\n',
        '    if not manifest.name.startswith(f"{entry.label}-"):\n',
        ("tests/serving/fleet/test_tiers.py::test_a_manifest_in_the_place_of_another_key_serves_no_call",),
    ),
    Fault(
        "Another tenant's entry in a tier serves where the method reaches the same weights",
        "src/gearcache/serving/fleet/tier_fetch.py",
        "        return list(reaching_the_same(self._entry, variants, components))\n",
        "        return variants\n",
        (
            "tests/serving/fleet/test_tiers.py::test_what_another_tenants_host_compiled_serves_where_the_method_reaches_the_same",
        ),
    ),
    Fault(
        "An unsigned entry of a tier is refused unless its URL allows that",
        "cache/remote/trust.py",
        "        if unsigned and not wrong and not self.signs:\n",
        "        if not wrong and not self.signs:\n",
        ("tests/cache/remote/test_signed_manifests.py::test_what_is_not_signed_is_refused_unless_that_is_allowed",),
    ),
    Fault(
        "A host to which a tier denies writes goes on reading there",
        "cache/remote/tier.py",
        "        return self._record(work, self._writes, is_telling=is_telling)\n",
        "        return self._record(work, self._reads, is_telling=is_telling)\n",
        ("tests/cache/remote/test_tier_faults.py::test_failed_writes_leave_reads_and_failed_reads_stop_both",),
    ),
    Fault(
        "The graphs that a call needs have the time that their bytes need",
        "src/gearcache/serving/fleet/tier_fetch.py",
        "                    until = deadline or tier.begin(sum(missing.values()))\n",
        "                    until = deadline or tier.begin()\n",
        ("tests/serving/fleet/test_tiers.py::test_a_fetch_has_the_time_that_its_bytes_need",),
    ),
    Fault(
        "`prune --remote` keeps a manifest whose blobs are back",
        "cache/remote/admin/prune.py",
        "            self.outcome.late = [name for name, digests in needed.items() if digests - present_digests]\n",
        "            self.outcome.late = [name for name, digests in needed.items() if digests]\n",
        ("tests/cache/remote/admin/test_pruned.py::test_a_manifest_whose_blobs_are_back_stays",),
    ),
    Fault(
        "A host pushes nothing that it does not load itself for its HMAC",
        "cache/remote/upload.py",
        "        data = trust.own_signed(data)\n",
        "        data = trust.signed(data)\n",
        (
            "tests/cache/remote/admin/test_moved_entries.py::test_what_this_host_does_not_load_for_its_hmac_is_neither_pushed_nor_packed",
        ),
    ),
    Fault(
        "Ranks agree: what one rank serves, no rank leaves out",
        "src/gearcache/ranks/plan.py",
        '            if piece.state == "out" and piece.work in served:\n',
        '            if piece.state == "out" and piece.work not in served:\n',
        ("tests/ranks/test_plan.py::test_a_call_that_is_not_needed_may_be_left_out_by_all_and_by_no_one_alone",),
    ),
    Fault(
        "`gearcache doctor --ready` reads every byte that a load reads",
        "src/gearcache/commands/checks/ready_checks.py",
        "reads=True",
        "reads=False",
        ("tests/commands/checks/test_ready.py::test_a_damaged_graph_is_not_ready",),
    ),
]
