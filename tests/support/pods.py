"""Kubernetes without a cluster: manifests are rendered, validated, and the commands of their pods are run for real.

Volumes are folders, with the owners and modes that Kubernetes gives them; paths of the container are mapped to them.
What a node does beyond that (users, images, networks) is not here.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.support.commands import run

#: Schemas of Kubernetes 1.35 (Apache-2.0), from the package `kubernetes-validate` (1.37.0), without descriptions.
SCHEMAS = Path(__file__).with_name("kubernetes") / "v1.35.json"
#: Stands for `gearcache` in a shell.
_TELLING = """#!/bin/sh
for each in "$@"; do printf '%s\\t' "$each" >> "$TOLD"; done
echo >> "$TOLD"
"""
#: What tells the items of lists from each other, in a strategic merge.
_MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "volumeMounts": "mountPath"}


def render(folder: Path) -> list[dict[str, Any]]:
    """The objects of a kustomization: its resources with its patches merged in, as `kubectl kustomize` does it."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(kustomization) <= {"apiVersion", "kind", "resources", "patches"}, "this renders no more than that"
    objects: list[dict[str, Any]] = []
    for name in kustomization.get("resources", []):
        path = folder / name
        objects += render(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for entry in kustomization.get("patches", []):
        assert set(entry) == {"path"}
        patch = yaml.safe_load((folder / entry["path"]).read_text())
        (target,) = (each for each in objects if _identity(each) == _identity(patch))
        objects[objects.index(target)] = _merged(target, patch)
    return objects


def _identity(document: Mapping[str, Any]) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


def _merged(base: Any, patch: Any, field_name: str = "") -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return {
            **base,
            **{name: _merged(base[name], value, name) if name in base else value for name, value in patch.items()},
        }
    key = _MERGE_KEYS.get(field_name)
    if key and isinstance(base, list) and isinstance(patch, list):
        by_name = {item[key]: item for item in base}
        for item in patch:
            by_name[item[key]] = _merged(by_name[item[key]], item) if item[key] in by_name else item
        return list(by_name.values())
    return copy.deepcopy(patch)


def problems(document: Mapping[str, Any]) -> list[str]:
    """What the schema of its kind says against an object; a field that Kubernetes does not know is a problem."""
    schemas = json.loads(SCHEMAS.read_text())
    kind = f"{document['apiVersion']} {document['kind']}"
    if kind not in schemas["kinds"]:
        return [f"there is no schema of {kind}"]
    schema = {"$ref": f"#/$defs/{schemas['kinds'][kind]}", "$defs": schemas["$defs"]}
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(schema).iter_errors(document)]


@dataclass
class Cluster:
    """Objects of a cluster, and the folders that stand for its volumes and images."""

    objects: list[dict[str, Any]]
    folder: Path
    #: What runs as `/app`.
    app: Path
    #: Folders of secrets, claims and images, by name.
    given: dict[str, Path] = field(default_factory=dict)
    #: Texts of values and commands that have no meaning here, and what stands for them.
    replaced: dict[str, str] = field(default_factory=dict)

    def find(self, kind: str) -> dict[str, Any]:
        """The one object of a kind."""
        (found,) = (each for each in self.objects if each["kind"] == kind)
        return found

    def pod(self, kind: str, name: str) -> Pod:
        """A new pod of a Deployment or Job, with empty volumes of its own."""
        return Pod(self, self.find(kind)["spec"]["template"]["spec"], self.folder / name)


@dataclass
class Pod:
    """One pod: its volumes stay between its containers."""

    cluster: Cluster
    spec: dict[str, Any]
    folder: Path

    def container(self, name: str) -> dict[str, Any]:
        """One container of it, or one that runs before them."""
        (found,) = (
            each for each in [*self.spec.get("initContainers", []), *self.spec["containers"]] if each["name"] == name
        )
        return found

    def environment(self, container: Mapping[str, Any], **more: str) -> dict[str, str]:
        """The environment of a container, with paths of this host."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            name = source["configMapRef"]["name"]
            (settings,) = (
                each["data"]
                for each in self.cluster.objects
                if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name
            )
            found |= settings
        found |= {each["name"]: each["value"] for each in container.get("env", [])}
        return {name: self.mapped(value, container) for name, value in (found | more).items()}

    def mapped(self, text: str, container: Mapping[str, Any]) -> str:
        """A text in which paths of the container are those of this host."""
        for old, new in self.cluster.replaced.items():
            text = text.replace(old, new)
        for mount in sorted(container.get("volumeMounts", []), key=lambda each: -len(each["mountPath"])):
            place = self.volume(mount["name"]) / mount.get("subPath", "")
            text = re.sub(rf"{re.escape(mount['mountPath'])}(?![\w.-])", str(place), text)
        return text

    def volume(self, name: str) -> Path:
        """The folder of a volume."""
        (volume,) = (each for each in self.spec["volumes"] if each["name"] == name)
        if "emptyDir" in volume:
            place = self.folder / name
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o2777)  # as Kubernetes does
            return place
        (kind,) = (each for each in volume if each != "name")
        source = volume[kind]
        return self.cluster.given[source.get("claimName") or source.get("secretName") or source.get("reference")]

    def run(
        self, monkeypatch: pytest.MonkeyPatch, container: str, *, code: int = 0, probe: str = "", **more: str
    ) -> str:
        """Run the command of a container, or of a probe of it, in this process; what it printed."""
        found = self.container(container)
        command = found[probe]["exec"]["command"] if probe else found["command"]
        environment = self.environment(found, **more)
        assert found["workingDir"] == "/app"
        with monkeypatch.context() as patch:
            patch.chdir(self.cluster.app)
            for name, value in environment.items():
                patch.setenv(name, value)
            output = ""
            for arguments in _commands([self.mapped(part, found) for part in command], self.folder):
                output += run(*arguments, code=code).output
            return output


def _commands(command: list[str], folder: Path) -> Iterator[list[str]]:
    """The arguments of each `gearcache` that a command runs; a shell really runs, with one that tells them."""
    if command[0] == "gearcache":
        yield command[1:]
        return
    assert command[:2] == ["sh", "-c"]
    folder.mkdir(parents=True, exist_ok=True)
    told, program = folder / "told", folder / "gearcache"
    program.write_text(_TELLING)
    program.chmod(0o755)
    told.write_text("")
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TOLD": str(told)}
    subprocess.run(command, env=environment, check=True, timeout=60)
    for line in told.read_text().splitlines():
        yield line.split("\t")[:-1]
