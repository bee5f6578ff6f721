"""Finds what is stored for a call, without loading or compiling anything."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct, field

from gearcache.building.digests import stored_digest
from gearcache.errors import CacheError, CorruptEntry, InputError
from gearcache.guards.dispatch.other_gears import OtherSize
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.gears.call_sizes import special_text
from gearcache.guards.gears.short_names import sizes_name
from gearcache.guards.gears.spec import GearSpec, gear_text
from gearcache.prewarming.coverage import Gap, Graph, gaps
from gearcache.serving.call.call import Call
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.evidence import EvidenceCheck
from gearcache.serving.find.fit import misfit
from gearcache.serving.find.sibling_entries import siblings_of
from gearcache.serving.miss.missing_gears import excluded_gears, fits_of

_NO_GRAPH = "the entry has no graph for it"


class Survey(Struct):
    """The stored and the missing gears of a call, and why they are missing."""

    present: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    #: The error that a server's call raises, whatever is compiled; empty if there is none.
    refusal: str = ""
    #: Calls for which no graph can be made, as a prewarm has found, and why.
    impossible: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    #: What a user can do about the first reason; empty if the advice is to compile.
    advice: str = ""
    #: Why each missing gear is missing.
    reasons: dict[str, str] = field(default_factory=dict)
    #: Bytes of the blobs of the present gears, by digest.
    blobs: dict[str, int] = field(default_factory=dict)
    #: The stored graph of each present gear: the digest of its variant, and its name there.
    graphs: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Declared sizes of open dims that no stored graph takes, although graphs for other sizes are stored.
    gaps: list[Gap] = field(default_factory=list)


def survey(binding: Binding, call: Call, *, reads: bool = False) -> Survey:
    """Look up the entry of a call, and check its variants against the call and the present state of the module.

    Where something is missing, the entries of its siblings count too, as in a load. Blobs are only checked for
    existence, unless `reads` asks for every byte of them.
    """
    manifest = binding.entry.look_up()
    variants = manifest if isinstance(manifest, Reason) else binding.entry.decode(manifest)
    absence = variants if isinstance(variants, Reason) else None
    stored = [] if isinstance(variants, Reason) else variants
    findings = _findings(binding, call, stored, absence, reads=reads)
    if findings.missing and (siblings := siblings_of(binding.entry)):
        of_siblings = [variant for sibling in siblings for variant in sibling.variants]
        findings = _findings(binding, call, [*stored, *of_siblings], absence, reads=reads)
    return findings


def _findings(
    binding: Binding, call: Call, variants: list[StoredVariant], absence: Reason | None, *, reads: bool
) -> Survey:
    """Check variants against a call; `absence` is why there is no entry of its own."""
    findings = Survey()
    spec = call.spec(binding.method.spec)
    special = special_text(spec, call.tensors)
    reasons: list[str] = []
    if absence is not None:
        findings.advice = absence.remedy
        reasons.append(str(absence))
    evidence = EvidenceCheck(call.scope)
    lost_blobs: dict[str, str] = {}
    serves = False
    blobs: set[str] = set()
    #: Why the graph of a gear is not for such a call.
    others: dict[str, str] = {}
    excluded: set[str] = set()
    graphs: list[Graph] = []
    usable: list[StoredVariant] = []
    for variant in variants:
        obstacle = misfit(variant, call) or evidence.stale_reason(variant)
        if obstacle is not None:
            reasons.append(str(obstacle))
            continue
        usable.append(variant)
        excluded |= excluded_gears(variant, call, spec)
        for fit in fits_of(variant, call, spec):
            gear = fit.gear
            if special and not fit.is_exact:
                continue
            if fit.obstacle:
                others.setdefault(gear.text, fit.obstacle)
            text = special or gear.text
            problems = (_blob_problem(binding, digest, reads=reads) for digest in gear.blobs.values())
            lost = [problem for problem in problems if problem]
            if lost:
                lost_blobs[text] = f"{lost[0]}, of gear {sizes_name(gear.text)}"
                reasons.append(lost_blobs[text])
                continue
            serves |= fit.is_exact
            if fit.is_like and _are_open(fit.other_sizes, spec):
                graphs.append((variant.inputs, gear))
            if fit.serves(spec) and text not in findings.present:
                findings.present.append(text)
                findings.graphs[text] = stored_digest(variant, by_role=False), gear.text
                blobs.update(gear.blobs.values())
    forecast = binding.forecast(call, usable) if not serves else ""
    if isinstance(forecast, InputError):
        findings.refusal, forecast = str(forecast), ""
    if special:
        findings.missing = [] if serves else [special]
    elif spec.axes:
        accounted = {*findings.present, *excluded}
        texts = [gear_text(spec, gear) for gear in spec.gears]
        findings.missing = [text for text in texts if text not in accounted]
        if forecast and forecast not in findings.missing:
            findings.missing.append(forecast)
    elif not serves:
        findings.missing = ["this call"]
    if findings.missing and special and (known_impossible := binding.impossible(call)) is not None:
        findings.missing, findings.impossible = [], {special: known_impossible.reason}
    if findings.missing:
        findings.reason = "; ".join(dict.fromkeys(reasons))
        general = "; ".join(dict.fromkeys(reason for reason in reasons if reason not in lost_blobs.values()))
        for text in findings.missing:
            findings.reasons[text] = lost_blobs.get(text) or general or others.get(text) or _NO_GRAPH
        findings.reason = findings.reason or findings.reasons[findings.missing[0]]
    if not special:
        findings.gaps = gaps(spec, call.tensors, graphs)
    for digest in sorted(blobs):
        with suppress(CorruptEntry):  # evicted since
            findings.blobs[digest] = binding.entry.store.blob_size(digest)
    return findings


def _blob_problem(binding: Binding, digest: str, *, reads: bool) -> str:
    """Return why a blob cannot be used, empty if it can; without `reads` only its existence is checked."""
    if not binding.entry.store.has_blob(digest):
        return f"blob {digest} is missing"
    try:
        if reads:
            binding.entry.store.read_blob(digest)
    except CacheError as error:
        return str(error)
    return ""


def _are_open(sizes: Iterable[OtherSize], spec: GearSpec) -> bool:
    """Return whether some sizes are of declared open dims only."""
    return all(any(axis.dim == size.dim and axis.matches(size.path) for axis in spec.dynamic_axes) for size in sizes)
