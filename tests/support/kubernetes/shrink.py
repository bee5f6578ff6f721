"""Makes `v1.35.json` of the schemas of Kubernetes: what the manifests of examples/fleet need, without descriptions.

    python tests/support/kubernetes/shrink.py FOLDER/v1.35.0-local-strict

The folder is one of those that the package `kubernetes-validate` (1.37.0) carries, made from the OpenAPI document of
Kubernetes 1.35 by openapi2jsonschema: strict, so that a field that is not known is an error. Apache-2.0, as Kubernetes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KINDS = {
    "apps/v1 Deployment": "io.k8s.api.apps.v1.Deployment",
    "batch/v1 Job": "io.k8s.api.batch.v1.Job",
    "v1 ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "v1 PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "v1 Service": "io.k8s.api.core.v1.Service",
}


def shrink(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions that the kinds reach, and which one each kind has."""
    kept: dict[str, Any] = {}
    pending = list(KINDS.values())
    while pending:
        name = pending.pop()
        if name not in kept:
            kept[name] = _plain(definitions[name], pending)
    return {"kinds": KINDS, "$defs": dict(sorted(kept.items()))}


def _plain(value: Any, met: list[str]) -> Any:
    if isinstance(value, list):
        return [_plain(item, met) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, item in value.items():
        if name == "$ref":
            target = item.rpartition("/")[2]
            met.append(target)
            found[name] = f"#/$defs/{target}"
        elif not (name == "description" and isinstance(item, str)) and not name.startswith("x-kubernetes"):
            found[name] = _plain(item, met)
    return found


if __name__ == "__main__":
    source = json.loads(Path(sys.argv[1], "_definitions.json").read_text(encoding="utf-8"))
    text = json.dumps(shrink(source["$defs"]), sort_keys=True, separators=(",", ":"))
    Path(__file__).with_name("v1.35.json").write_text(text + "\n", encoding="utf-8")
