"""examples/fleet: manifests are what Kubernetes takes; their commands, and those of the Dockerfile, do what they say.

Not run: Docker (`apt-get`, `pip`), images of containers, and a cluster. The server of the image runs as the user of the
image where the tests are root's, on a copy of what the stage before has made.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

import gearcache
from tests.support.commands import run
from tests.support.other_user import command_as, may_be_another_user
from tests.support.pods import Cluster, problems, render
from tests.support.signing import Pair
from tests.support.source_tree import ROOT

FLEET = ROOT / "examples" / "fleet"
OVERLAYS = ("base", "volume", "bucket", "image")


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The code of the deployment, with the backend that needs no compiler."""
    monkeypatch.setattr(gearcache, "CompilerConfig", functools.partial(gearcache.CompilerConfig, backend="eager"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    threads = torch.get_num_threads()
    for name in ("deploy", "model"):  # other tests have modules of these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield FLEET / "app"
    torch.set_num_threads(threads)
    for name in ("deploy", "model"):
        sys.modules.pop(name, None)


def cluster(overlay: str, app: Path, folder: Path, **given: Path) -> Cluster:
    return Cluster(render(FLEET / "kubernetes" / overlay), folder, app, {name: given[name] for name in given})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_what_kubernetes_takes(overlay: str) -> None:
    objects = render(FLEET / "kubernetes" / overlay)
    assert {each["metadata"]["name"]: problems(each) for each in objects} == {
        each["metadata"]["name"]: [] for each in objects
    }
    for each in objects:
        if "template" in each["spec"] if "spec" in each else False:
            spec = each["spec"]["template"]["spec"]
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            for container in [*spec.get("initContainers", []), *spec["containers"]]:
                assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes


def test_a_job_fills_a_volume_from_which_pods_start_warm(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, secret = tmp_path / "shared", tmp_path / "secret"
    shared.mkdir()
    shared.chmod(0o2777)
    (secret / "..2026_11_23").mkdir(parents=True)
    pair = Pair(secret / "..2026_11_23")  # a secret is mounted behind two links
    (secret / "..data").symlink_to("..2026_11_23")
    (secret / "build.pem").symlink_to("..data/build.pem")
    given = {"gears": shared, "gears-signing-key": secret}
    site = cluster("volume", app, tmp_path, **given)
    site.replaced["build:REPLACE="] = pair.trusted.text

    early = site.pod("Deployment", "early")
    told = early.run(monkeypatch, "gears", code=1)
    assert "Classifier.embed: missing rows.size(0)=1" in told, "a pod does not start cold"
    assert "missing" in early.run(monkeypatch, "server", probe="startupProbe", code=1)

    job = site.find("Job")["spec"]
    assert (job["completionMode"], job["completions"]) == ("Indexed", 2)
    outputs = [
        site.pod("Job", f"job {index}").run(monkeypatch, "prewarm", JOB_COMPLETION_INDEX=str(index))
        for index in range(job["completions"])
    ]
    assert ["compiled 4 graphs" in output for output in outputs] == [True, True]
    assert ["1 entry is left to shard" in output for output in outputs] == [True, True]

    pod = site.pod("Deployment", "pod")
    assert "brought 2 entries" in pod.run(monkeypatch, "gears")
    pod.run(monkeypatch, "server", probe="startupProbe")
    (blob, *_) = (pod.volume("cache") / "v7" / "blobs").glob("*/*")
    blob.chmod(0o600)
    blob.write_bytes(b"damaged")
    pod.run(monkeypatch, "server", probe="startupProbe", code=1)

    site.replaced["build:REPLACE="] = Pair(tmp_path, "other").trusted.text
    assert "is not trusted" in site.pod("Deployment", "stranger").run(monkeypatch, "gears", code=1)


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage of the Dockerfile, by its name; the last one is called `last`."""
    text = (FLEET / "Dockerfile").read_text().replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "last"
            found[name] = []
        else:
            found[name].append((word, rest))
    return found


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that any user may enter, as no folder of pytest's is."""
    folder = Path(tempfile.mkdtemp(prefix="gearcache-image-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def packed(app: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the commands of the Dockerfile that build the cache of the image; returns that."""
    parts = stages()
    variables = dict(pair.split("=") for word, rest in parts["base"] if word == "ENV" for pair in rest.split())
    assert variables["TORCHAIR_CACHE_HOME"] == "/var/cache/gearcache"
    settings = yaml.safe_load((FLEET / "kubernetes" / "base" / "settings.yaml").read_text())["data"]
    assert variables.items() <= settings.items(), "built and served with one environment"
    ran = []
    with monkeypatch.context() as patch:
        patch.chdir(app)
        patch.setenv("TORCHAIR_CACHE_HOME", str(folder / "built"))
        for word, rest in [*parts["base"], *parts["builder"]]:
            for command in rest.split(" && ") if word == "RUN" else ():
                if command.startswith("gearcache "):
                    command = command.replace("$OMP_NUM_THREADS", str(torch.get_num_threads()))
                    run(*shlex.split(command.replace("/packed", str(folder / "packed")))[1:])
                    ran.append(command.split()[1])
                else:
                    assert command.startswith(("pip install ", "apt-get ", "rm ")), command
    assert ran == ["prewarm", "doctor", "verify", "pack"]
    return folder / "packed"


def test_the_dockerfile_compiles_into_a_cache_of_the_image(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = stages()
    assert list(parts) == ["base", "builder", "bare", "last"]
    assert ("COPY", "--from=builder --chown=root:root /packed /var/cache/gearcache") in parts["last"]
    (command,) = (json.loads(rest) for word, rest in parts["bare"] if word == "CMD")
    assert command == render(FLEET / "kubernetes" / "base")[1]["spec"]["template"]["spec"]["containers"][0]["command"]
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(packed(app, tmp_path, monkeypatch)))
    monkeypatch.chdir(app)
    run("doctor", "--ready", "deploy:build")


@pytest.mark.thorough  # a process of another user imports torch for long; the test above says that all is there
def test_the_image_serves_as_its_user(app: Path, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = dict(stages()["bare"])
    image = public / "image"
    shutil.copytree(packed(app, tmp_path, monkeypatch), image)  # keeps modes, as COPY does
    (public / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join(filter(None, (str(public), os.environ.get("PYTHONPATH"))))
    told = check_served(json.loads(bare["CMD"]), app, image, int(bare["USER"]), PYTHONPATH=path)
    assert "gearcache" not in told


SITE = """
import functools
import gearcache
gearcache.CompilerConfig = functools.partial(gearcache.CompilerConfig, backend="eager")
"""


def check_served(command: list[str], app: Path, image: Path, user: int, **variables: str) -> str:
    """Start the server as its container does, as that user; it answers. Returns what it told on stderr."""
    assert command[0] == "python"
    errors = image.with_name("errors")
    with (
        errors.open("w") as file,
        subprocess.Popen(
            as_user(user, [sys.executable, *command[1:]]),
            cwd=app,
            env={**os.environ, **variables, "TORCHAIR_CACHE_HOME": str(image), "PORT": "0"},
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line, errors.read_text()
            connection = http.client.HTTPConnection("localhost", int(line.split()[-1]), timeout=60)
            for path, body, code in (
                ("/scores", [[0.0] * 64] * 3, 200),
                ("/features", [[0.0] * 9], 422),
                ("/", 1, 404),
            ):
                connection.request("POST", path, json.dumps(body))
                answer = connection.getresponse()
                told = json.loads(answer.read())
                assert answer.status == code, told
                if code == 200:
                    assert [round(sum(row), 5) for row in told["rows"]] == [1.0] * 3
            connection.request("GET", "/health")
            assert json.loads(connection.getresponse().read()) == {"compiles": 0}
        finally:
            server.terminate()
            server.wait(30)
    return errors.read_text()


def as_user(user: int, command: list[str]) -> list[str]:
    """A command, as a user where that can be."""
    return command_as(user, command) if may_be_another_user() else command
