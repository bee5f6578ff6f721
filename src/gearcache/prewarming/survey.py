"""What is stored for a call, found without loading or compiling anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gearcache.cache import Manifest
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.inputs import find_problem
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.gears.parse import gear_text
from gearcache.serving.activate import EvidenceCheck, misfit
from gearcache.serving.binding import Binding
from gearcache.serving.call import Call


@dataclass
class Survey:
    """Gears that are stored for a call and those that are not, and why; `size` in bytes of their blobs."""

    present: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    reason: str = ""
    size: int = 0


def survey(binding: Binding, call: Call) -> Survey:
    """Look the entry of a call up, and check its variants against the call and the module as they are now.

    Blobs are only checked for being there.
    """
    found = Survey()
    spec = call.spec(binding.method.spec)
    manifest, reason = binding.entry.look_up()
    variants = binding.entry.decode(manifest) if manifest is not None else []
    reasons = [reason] if reason else []
    if isinstance(variants, Reason):
        reasons, variants = [*reasons, str(variants)], []
    evidence = EvidenceCheck(call.scope)
    serves = False
    blobs: set[str] = set()
    for variant in variants:
        unfit = misfit(variant, call.scope) or evidence.stale_reason(variant)
        if unfit is not None:
            reasons.append(str(unfit))
            continue
        for gear in variant.gears:
            lost = [digest for digest in gear.blobs.values() if not binding.entry.has_blob(digest)]
            if lost:
                reasons.append(f"blob {lost[0]} of gear {gear.text} is missing")
                continue
            takes, fits = _takes(variant, gear, call.scope)
            serves |= fits
            if takes and gear.text not in found.present:
                found.present.append(gear.text)
                blobs.update(gear.blobs.values())
    if spec.axes:
        known = {*found.present, *impossible_gears(manifest)}
        texts = [gear_text(spec, gear) for gear in spec.gears]
        found.missing = [text for text in texts if text not in known]
    elif not serves:
        found.missing = ["this call"]
    if found.missing:
        found.reason = "; ".join(dict.fromkeys(reasons))
    found.size = sum(size for digest, size in (manifest.blobs if manifest else {}).items() if digest in blobs)
    return found


def impossible_gears(manifest: Manifest | None) -> list[str]:
    """Return the gears of the spec that an earlier build found to be none: the trace ties their sizes otherwise."""
    stored: Any = manifest.payload.get("impossible", []) if manifest is not None else []
    return [str(text) for text in stored] if isinstance(stored, list) else []


def _takes(variant: StoredVariant, gear: Any, scope: Scope) -> tuple[bool, bool]:
    """Return whether a gear takes such a call at some sizes, and whether it takes it at its own."""
    try:
        tensors = tuple(stored.access.resolve(scope) for stored in variant.inputs)
    except (LookupError, AttributeError, TypeError):
        return False, False
    problem = find_problem(variant.inputs, gear, tensors)
    return problem is None or problem.kind in ("shape", "stride"), problem is None
