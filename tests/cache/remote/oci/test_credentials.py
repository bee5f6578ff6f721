"""Where names and passwords of registries come from, which of several count, and that none is ever shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.remote.oci.credentials import Credentials, credentials_file, find_credentials
from tests.cache.remote.registries import basic


def found(tmp_path: Path, auths: Any, host: str = "r.example", repository: str = "team/gears") -> Credentials | None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths, "credHelpers": {"gcr.io": "gcloud"}}))
    return find_credentials(host, repository, {"DOCKER_CONFIG": str(tmp_path)})


def test_the_first_place_that_is_named_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials_file({}) == tmp_path / ".docker" / "config.json"
    assert credentials_file({"DOCKER_CONFIG": "/d"}) == Path("/d/config.json")
    assert credentials_file({"DOCKER_CONFIG": "/d", "REGISTRY_AUTH_FILE": "/r/auth.json"}) == Path("/r/auth.json")
    assert find_credentials("r.example", "a", {}) is None
    assert find_credentials("r.example", "a", {"REGISTRY_AUTH_FILE": "/absent"}) is None


@pytest.mark.parametrize(
    ("auths", "name"),
    [
        ({"r.example": {"auth": basic("team", "secret:x")}}, "team"),
        ({"https://r.example/v1/": {"auth": basic("older", "secret:x")}}, "older"),
        ({"r.example": {"username": "plain", "password": "secret:x"}}, "plain"),
        ({"r.example": {"auth": basic("far", "p")}, "r.example/team": {"auth": basic("near", "secret:x")}}, "near"),
        ({"r.example/team/gears": {"auth": basic("own", "secret:x")}, "r.example": {}}, "own"),
        ({"r.example/other": {"auth": basic("other", "secret:x")}}, None),
        ({"r.example:5000": {"auth": basic("other", "secret:x")}}, None),
        ({"r.example": {}}, None),
        ({"r.example": "x"}, None),
        ([], None),
    ],
)
def test_the_closest_name_counts(tmp_path: Path, auths: Any, name: str | None) -> None:
    credentials = found(tmp_path, auths)
    assert (credentials and credentials.name) == name
    if credentials is not None:
        assert credentials.password == "secret:x"
        assert "secret" not in repr(credentials)


def test_docker_hub_has_the_name_that_docker_gives_it(tmp_path: Path) -> None:
    auths = {"https://index.docker.io/v1/": {"auth": basic("team", "secret")}}
    credentials = found(tmp_path, auths, host="registry-1.docker.io")
    assert credentials is not None
    assert credentials.basic == "Basic " + basic("team", "secret")


def test_tokens_that_a_login_stored_are_found(tmp_path: Path) -> None:
    identity = found(tmp_path, {"r.example": {"auth": basic("0000", ""), "identitytoken": "refresh"}})
    assert identity is not None
    assert identity.identity == "refresh"
    bearer = found(tmp_path, {"r.example": {"registrytoken": "bearer"}})
    assert bearer == Credentials(bearer="bearer")
    assert "refresh" not in repr(identity)
    assert "bearer" not in repr(bearer).replace("bearer=", "")


@pytest.mark.parametrize("text", ["secret", '{"auths": secret', "[" * 100_000])
def test_a_file_that_is_none_is_named_and_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json` is no JSON") as caught:
        find_credentials("r.example", "a", {"DOCKER_CONFIG": str(tmp_path)})
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("auth", ["no base64 secret!", "x", "c2VjcmV0"])
def test_a_name_and_password_that_cannot_be_read_are_not_shown(tmp_path: Path, auth: str) -> None:
    with pytest.raises(ValueError, match=r"`auth` of `r.example` is no name and password") as caught:
        found(tmp_path, {"r.example": {"auth": auth}})
    assert "secret" not in str(caught.value)


def test_a_pipe_in_its_place_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ValueError, match="cannot be read"):
        find_credentials("r.example", "a", {"DOCKER_CONFIG": str(tmp_path)})
