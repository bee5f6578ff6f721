"""The client of registries: pushing and pulling with real ones, tokens, redirects, and registries that misbehave."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.layout import Layout
from gearcache.cache.remote.oci.challenge import Challenge
from gearcache.cache.remote.oci.credentials import Credentials
from gearcache.cache.remote.oci.documents import INDEX_TYPE, Descriptor, digest_of
from gearcache.cache.remote.oci.image_remote import OciRemote
from gearcache.cache.remote.oci.push import push_folder, push_image
from gearcache.cache.remote.oci.reference import parse_reference
from gearcache.cache.remote.oci.registry import Registry
from gearcache.cache.remote.protocol import Deadline, RemoteError
from gearcache.cache.store import DiskStore, Hit
from tests.cache.remote.images import packed, put_image, put_manifest, write_objects
from tests.cache.remote.registries import (
    Answer,
    Seen,
    SmallRegistry,
    basic,
    docker_registry,
    free_port,
    serving,
    small_registry,
    write_certificate,
)
from tests.support.commands import DECODE, PREFILL, store

OBJECTS = {"v4/blobs/ab/one": os.urandom(3000), "v4/entries/M.f/k/manifest.msgpack": b"manifest"}
MOST = 1 << 20


def soon(seconds: float = 20.0) -> Deadline:
    return Deadline.after(seconds)


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stores credentials for a registry; none are stored at first."""
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))

    def put(host: str, **found: str) -> None:
        (tmp_path / "docker").mkdir(exist_ok=True)
        (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {host: found}}))

    return put


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as made:
        yield made


def tier(registry: SmallRegistry, name: str = ":latest") -> OciRemote:
    return OciRemote(f"oci://{registry.host}/team/gears{name}")


def everything(remote: OciRemote) -> dict[str, bytes | None]:
    return {name: remote.get(name, MOST, soon()) for name in remote.names("", 100, soon())}


def image_in(folder: Path) -> Path:
    write_objects(folder / "image", OBJECTS)
    return folder / "image"


def filled(root: Path) -> Layout:
    for key in (DECODE, PREFILL):
        store(root, key, key.digest.encode() * 1000)
    return Layout(root)


# -- a real registry -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    with docker_registry() as host:
        yield host


def test_what_is_pushed_to_a_real_registry_is_a_cache_on_another_host(real: str, tmp_path: Path) -> None:
    layout = filled(tmp_path / "cache")
    url = f"oci://{real}/team/gears:v1"
    pushed = push_image(layout, Catalog(layout).entries(), url, soon())
    assert (pushed.reference, sorted(pushed.entries), pushed.blobs) == (url, sorted((DECODE.name, PREFILL.name)), 2)
    assert pushed.size == 2 * 64_000
    assert pushed.sent > 0
    for name in (url, f"oci://{real}/team/gears@{pushed.digest}"):
        remote = OciRemote(name)
        for path in remote.names("v4/", 100, soon()):
            target = tmp_path / "pulled" / path
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(remote.get(path, MOST, soon()) or b"")
            target.chmod(0o600)
    pulled = DiskStore(Layout(tmp_path / "pulled"))
    for key in (DECODE, PREFILL):
        found = pulled.lookup(key)
        assert isinstance(found, Hit)
        assert [pulled.read_blob(digest) for digest in found.manifest.blobs] == [key.digest.encode() * 1000]


def test_what_is_there_is_not_sent_again_and_a_tag_moves(real: str, tmp_path: Path) -> None:
    layout = filled(tmp_path / "cache")
    entries = Catalog(layout).entries()
    url = f"oci://{real}/team/again:v1"
    first = push_image(layout, entries, url, soon())
    again = push_image(layout, entries, url, soon())
    assert (again.sent, again.digest) == (0, first.digest)
    old = OciRemote(url)
    assert len(old.names("v4/entries/", 10, soon())) == 2
    one = push_image(layout, entries[:1], url, soon())
    assert one.digest != first.digest
    assert len(old.names("v4/entries/", 10, soon())) == 2, "what was fetched once is kept"
    assert len(OciRemote(url).names("v4/entries/", 10, soon())) == 1
    assert len(OciRemote(f"oci://{real}/team/again@{first.digest}").names("v4/entries/", 10, soon())) == 2
    elsewhere = push_image(layout, entries, f"oci://{real}/team/again:v2", soon())
    assert (elsewhere.sent, elsewhere.digest) == (0, first.digest)


def test_an_image_that_a_real_registry_does_not_have_is_told(real: str) -> None:
    for name in ("team/absent:v1", f"team/absent@sha256:{'0' * 64}"):
        with pytest.raises(RemoteError, match="there is no such image"):
            OciRemote(f"oci://{real}/{name}").names("v4/", 1, soon())


def test_a_real_registry_that_wants_a_password_gets_the_stored_one(
    tmp_path: Path, credentials: Callable[..., None]
) -> None:
    image = image_in(tmp_path)
    with docker_registry(password=True) as host:
        url = f"oci://{host}/team/gears:v1"
        for asked in (lambda: push_folder(image, url, soon()), lambda: OciRemote(url).names("v4/", 1, soon())):
            credentials("other.example", auth=basic("team", "secret"))
            with pytest.raises(RemoteError, match="wants credentials, and none are stored"):
                asked()
            credentials(host, auth=basic("team", "wrong-secret"))
            with pytest.raises(RemoteError, match="those that are stored are refused") as caught:
                asked()
            assert "secret" not in str(caught.value)
        credentials(host, auth=basic("team", "secret"))
        assert push_folder(image, url, soon()).sent > 0
        assert everything(OciRemote(url)) == OBJECTS


# -- tokens ----------------------------------------------------------------------------------------------------


class Tokens:
    """A server of tokens, as registries name one: with `password` it gives tokens to the name `team` alone."""

    def __init__(self, registry: SmallRegistry, *, password: str = "", identity: str = "") -> None:
        self.seen: list[Seen] = []
        self._registry = registry
        self._password, self._identity = password, identity

    def answer(self, seen: Seen) -> Answer:
        self.seen.append(seen)
        form = urllib.parse.parse_qs(seen.body.decode())
        if self._identity and form.get("refresh_token") != [self._identity]:
            return 401, {}, b""
        if self._password and seen.headers.get("authorization") != f"Basic {basic('team', self._password)}":
            return 401, {"WWW-Authenticate": 'Basic realm="tokens"'}, b""
        token = f"token-{len(self.seen)}"
        self._registry.tokens = {token}
        return 200, {}, json.dumps({"access_token" if form else "token": token}).encode()


@pytest.mark.parametrize("kind", ["anonymous", "password", "identity"])
def test_a_token_is_fetched_where_the_registry_says(
    registry: SmallRegistry, tmp_path: Path, credentials: Callable[..., None], kind: str
) -> None:
    tokens = Tokens(
        registry, password="secret" if kind == "password" else "", identity="refresh" if kind == "identity" else ""
    )
    with serving(tokens.answer) as host:
        registry.realm = f"http://{host}/token"
        if kind == "password":
            credentials(registry.host, auth=basic("team", "secret"))
        elif kind == "identity":
            credentials(registry.host, auth=basic("0000", ""), identitytoken="refresh")
        push_folder(image_in(tmp_path), f"oci://{registry.host}/team/gears:latest", soon())
        assert everything(tier(registry)) == OBJECTS
        asked = tokens.seen[0]
        query = urllib.parse.parse_qs(asked.body.decode() if kind == "identity" else asked.path.partition("?")[2])
        assert query["service"] == ["registry.test"]
        assert query["scope"] == ["repository:team/gears:pull"]
        assert ("authorization" in asked.headers) == (kind == "password")
    sent = [seen.headers.get("authorization", "") for seen in registry.seen]
    assert {text.partition("-")[0] for text in sent} == {"", "Bearer token"}


def test_a_token_that_ends_during_a_push_is_renewed(registry: SmallRegistry, tmp_path: Path) -> None:
    tokens = Tokens(registry)
    with serving(tokens.answer) as host:
        registry.realm = f"http://{host}/token"

        def forget(seen: Seen) -> None:
            if seen.method == "PUT" and "PUT" not in [before.method for before in registry.seen[:-1]]:
                registry.tokens = set()

        registry.instead = forget  # type: ignore[assignment]
        push_folder(image_in(tmp_path), f"oci://{registry.host}/team/gears:latest", soon())
        assert len(tokens.seen) == 2
        assert everything(tier(registry)) == OBJECTS


def test_credentials_that_the_server_of_tokens_refuses_are_told(
    registry: SmallRegistry, credentials: Callable[..., None]
) -> None:
    with serving(Tokens(registry, password="other").answer) as host:
        registry.realm = f"http://{host}/token"
        credentials(registry.host, auth=basic("team", "secret"))
        with pytest.raises(RemoteError, match="those that are stored are refused") as caught:
            tier(registry).names("v4/", 1, soon())
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((500, {}, b""), "server of tokens answers with status 500"),
        ((200, {}, b"{}"), "gives no token"),
        ((200, {}, b'{"token": "a\\r\\nX: y"}'), "gives no token"),
        ((200, {}, b'{"token": ""}'), "gives no token"),
        ((200, {}, b"nonsense"), "gives no token"),
        ((200, {}, b"x" * (2 << 20)), "where a document belongs"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "status 302"),
    ],
)
def test_a_server_of_tokens_that_misbehaves_is_told(registry: SmallRegistry, answer: Answer, told: str) -> None:
    with serving(lambda _: answer) as host:
        registry.realm = f"http://{host}/token"
        with pytest.raises(RemoteError, match=told):
            tier(registry).names("v4/", 1, soon())


@pytest.mark.parametrize("realm", ["file:///etc/passwd", "tokens", "https://", "ftp://tokens.example"])
def test_a_server_of_tokens_that_is_none_is_told(registry: SmallRegistry, realm: str) -> None:
    registry.realm = realm
    with pytest.raises(RemoteError, match="not of `https:`"):
        tier(registry).names("v4/", 1, soon())


def test_credentials_go_to_no_server_of_tokens_without_encryption() -> None:
    credentials = Credentials("team", "secret")
    asked = Registry(parse_reference("oci://registry.example/team/gears"), credentials, soon())
    for realm in ("http://tokens.example/token", "http://10.0.0.1/token"):
        with pytest.raises(RemoteError, match="not of `https:`"):
            asked._authorize(Challenge(realm))


@pytest.mark.parametrize("header", ['Negotiate realm="x"', "", 'Bearer service="x"'])
def test_a_challenge_of_another_kind_is_told(registry: SmallRegistry, header: str) -> None:
    registry.instead = lambda _: (401, {"WWW-Authenticate": header} if header else {}, b"")
    with pytest.raises(RemoteError, match="of a kind that is not known here"):
        tier(registry).names("v4/", 1, soon())


# -- encryption ------------------------------------------------------------------------------------------------


def test_an_encrypted_registry_is_asked_if_its_certificate_is_trusted(
    registry: SmallRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = write_certificate(tmp_path / "certificate.pem")
    image_in(tmp_path)
    with serving(registry.answer, certificate) as host:
        url = f"oci://localhost:{host.rpartition(':')[2]}/team/gears:latest"
        for asked in (
            lambda: push_folder(tmp_path / "image", url, soon(), insecure=False),
            lambda: OciRemote(url, insecure=False).names("v4/", 1, soon()),
        ):
            with pytest.raises(RemoteError, match="CERTIFICATE_VERIFY_FAILED"):
                asked()
        assert registry.seen == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        push_folder(tmp_path / "image", url, soon(), insecure=False)
        assert everything(OciRemote(url, insecure=False)) == OBJECTS
        with pytest.raises(RemoteError, match="CERTIFICATE_VERIFY_FAILED"):  # it is of `localhost`
            OciRemote(url.replace("localhost", "127.0.0.1"), insecure=False).names("v4/", 1, soon())


# -- redirects -------------------------------------------------------------------------------------------------


def test_blobs_come_from_a_host_of_storage_without_credentials(
    registry: SmallRegistry, credentials: Callable[..., None]
) -> None:
    layer, diff_id = packed(OBJECTS)
    put_image(registry, layer, diff_id)
    stored: list[Seen] = []

    def storage(seen: Seen) -> Answer:
        stored.append(seen)
        return 200, {}, registry.blobs[seen.path.partition("?")[0].removeprefix("/")]

    with serving(storage) as host, serving(Tokens(registry).answer) as tokens:
        registry.storage, registry.realm = f"http://{host}", f"http://{tokens}/token"
        credentials(registry.host, auth=basic("team", "secret"))
        assert everything(tier(registry)) == OBJECTS
    assert len(stored) == 2
    assert not any("authorization" in seen.headers for seen in stored)
    assert all(seen.path.endswith("?signature=abc") for seen in stored)


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("", "does not say where to go on"),
        ("file:///etc/passwd", "not of `https:`"),
        ("ftp://storage.example/x", "not of `https:`"),
        ("/v2/team/gears/blobs/round", "redirects without end"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_told(registry: SmallRegistry, location: str, told: str) -> None:
    layer, diff_id = packed(OBJECTS)
    put_image(registry, layer, diff_id)
    registry.instead = lambda seen: (307, {"Location": location}, b"") if "/blobs/" in seen.path else None
    with pytest.raises(RemoteError, match=told):
        tier(registry).names("v4/", 1, soon())
    assert len(registry.seen) <= 8


def test_an_encrypted_registry_leads_to_no_host_without_encryption() -> None:
    asked = Registry(parse_reference("oci://registry.example/team/gears"), None, soon())
    for place in ("http://storage.example/x", "http://10.0.0.1/x"):
        with pytest.raises(RemoteError, match="not of `https:`"):
            asked._next("https://registry.example/v2/x", place)
    assert asked._next("https://registry.example/v2/x", "/y?z=1") == "https://registry.example/y?z=1"


def test_a_manifest_and_an_upload_are_not_redirected(registry: SmallRegistry, tmp_path: Path) -> None:
    layer, diff_id = packed(OBJECTS)
    put_image(registry, layer, diff_id)
    registry.instead = lambda seen: (307, {"Location": "/x"}, b"") if seen.method != "HEAD" else None
    with pytest.raises(RemoteError, match="GET is answered with status 307"):
        tier(registry).names("v4/", 1, soon())
    registry.blobs.clear()
    with pytest.raises(RemoteError, match="POST is answered with status 307"):
        push_folder(image_in(tmp_path), tier(registry).label, soon())


# -- what is wrong with an image ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["oci", "docker", "index", "docker index"])
def test_images_of_oci_and_docker_and_an_index_of_one_are_read(registry: SmallRegistry, kind: str) -> None:
    layer, diff_id = packed(OBJECTS)
    found = put_image(registry, layer, diff_id)
    if kind == "docker":
        document = json.loads(registry.manifests["latest"][1])
        document["mediaType"] = "application/vnd.docker.distribution.manifest.v2+json"
        document["config"]["mediaType"] = "application/vnd.docker.container.image.v1+json"
        document["layers"][0]["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
        put_manifest(registry, document, document["mediaType"])
    elif "index" in kind:
        media_type = INDEX_TYPE if kind == "index" else "application/vnd.docker.distribution.manifest.list.v2+json"
        index = {"schemaVersion": 2, "mediaType": media_type, "manifests": [found.plain()]}
        top = put_manifest(registry, index, media_type)
        assert everything(tier(registry, f"@{top.digest}")) == OBJECTS
    assert everything(tier(registry)) == OBJECTS


def put_wrong(registry: SmallRegistry, kind: str) -> str:
    """Put an image that is wrong; returns how it is asked for."""
    layer, diff_id = packed(OBJECTS)
    found = put_image(registry, layer, diff_id)
    digest = digest_of(layer)
    (config,) = registry.blobs.keys() - {digest}
    if kind == "manifest":
        other = put_image(registry, packed({})[0])
        registry.manifests[found.digest] = registry.manifests[other.digest]
        return f"@{found.digest}"
    if kind == "told digest":
        media_type, data = registry.manifests["latest"]
        headers = {"Content-Type": media_type, "Docker-Content-Digest": digest}
        registry.instead = lambda seen: (200, headers, data) if "/manifests/" in seen.path else None
    elif kind == "inner manifest":
        other = put_image(registry, packed({})[0])
        registry.manifests[found.digest] = registry.manifests[other.digest]
        index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [found.plain()]}
        put_manifest(registry, index, INDEX_TYPE)
    elif kind == "config":
        registry.blobs[config] = registry.blobs[config].replace(b"linux", b"Linux")
    elif kind == "layer":
        registry.blobs[digest] = layer[:-20] + bytes([layer[-20] ^ 1]) + layer[-19:]
    elif kind == "content":
        put_image(registry, layer, digest_of(b"other"))
    elif kind in ("cut", "cut config", "cut manifest"):
        part = {"cut": digest, "cut config": config, "cut manifest": "latest"}[kind]
        data = registry.manifests["latest"][1] if part == "latest" else registry.blobs[part]
        registry.instead = lambda seen: (
            (200, {"Content-Length": str(len(data)), "Connection": "close"}, data[:-5])
            if seen.path.endswith(part)
            else None
        )
    elif kind == "longer":
        registry.blobs[digest] = layer + bytes(100)
    elif kind == "endless":
        registry.blobs[digest] = layer + bytes(50 << 20)
    elif kind == "absent layer":
        del registry.blobs[digest]
    elif kind == "huge manifest":
        registry.manifests["latest"] = ("x", b" " * (5 << 20))
    elif kind == "config type":
        put_image(registry, layer, diff_id, config={"mediaType": "x/y", "digest": config, "size": 5})
    elif kind == "schema 1":
        put_manifest(registry, {"schemaVersion": 1, "name": "team/gears", "fsLayers": []}, "x")
    elif kind == "no JSON":
        registry.manifests["latest"] = ("text/html", b"<html>log in</html>")
    return ":latest"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("manifest", "other bytes for sha256"),
        ("told digest", "other bytes for sha256"),
        ("inner manifest", "other bytes for sha256"),
        ("config", "other bytes for sha256"),
        ("layer", "other bytes for sha256|damaged"),
        ("content", "does not hold what its config says"),
        ("cut", "cut off after"),
        ("cut config", "other bytes for sha256"),
        ("cut manifest", "cut off after"),
        ("longer", "more than the"),
        ("endless", "more than the"),
        ("absent layer", r"status 404 Not Found \(BLOB_UNKNOWN\)"),
        ("huge manifest", "more than 4194304 bytes"),
        ("config type", "config is of the type `x/y`"),
        ("schema 1", "another kind"),
        ("no JSON", "no JSON"),
    ],
)
def test_an_image_that_is_wrong_is_refused(registry: SmallRegistry, kind: str, told: str) -> None:
    remote = tier(registry, put_wrong(registry, kind))
    with pytest.raises(RemoteError, match=told) as caught:
        remote.get("v4/blobs/ab/one", MOST, soon())
    assert str(caught.value).startswith(f"tier {remote.label}: ")


def test_of_a_document_that_is_too_long_little_is_read(registry: SmallRegistry) -> None:
    registry.blobs[digest_of(b"x")] = bytes(20 << 20)
    asked = Registry(parse_reference(f"oci://{registry.host}/team/gears"), None, soon())
    data = asked.document(Descriptor("", digest_of(b"x"), 1000))
    assert 1000 < len(data) <= 1000 + (1 << 20)


def test_a_failed_fetch_is_tried_again_and_a_good_one_is_kept(registry: SmallRegistry) -> None:
    put_wrong(registry, "absent layer")
    remote = tier(registry)
    with pytest.raises(RemoteError):
        remote.names("v4/", 1, soon())
    layer, diff_id = packed(OBJECTS)
    put_image(registry, layer, diff_id)
    assert everything(remote) == OBJECTS
    number = len(registry.seen)
    assert everything(remote) == OBJECTS
    assert remote.size("v4/blobs/ab/one", soon()) == 3000
    assert len(registry.seen) == number


def test_threads_fetch_an_image_once(registry: SmallRegistry) -> None:
    layer, diff_id = packed(OBJECTS)
    put_image(registry, layer, diff_id)
    registry.instead = lambda _: time.sleep(0.1)
    remote = tier(registry)
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(everything(remote))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [OBJECTS] * 6
    assert len(registry.seen) == 3


def test_a_thread_waits_for_another_one_no_longer_than_its_deadline(registry: SmallRegistry) -> None:
    layer, diff_id = packed(OBJECTS)
    put_image(registry, layer, diff_id)
    registry.instead = lambda _: time.sleep(0.5)
    remote = tier(registry)
    first = threading.Thread(target=lambda: remote.names("v4/", 1, soon()))
    first.start()
    time.sleep(0.1)
    begin = time.monotonic()
    with pytest.raises(RemoteError, match=r"another thread did not fetch it within 0\.2 s"):
        remote.names("v4/", 1, soon(0.2))
    assert time.monotonic() - begin < 0.5
    first.join()


def test_it_is_read_only(registry: SmallRegistry) -> None:
    remote = tier(registry)
    for change in (lambda: remote.put("a", b"b", soon()), lambda: remote.delete("a", soon())):
        with pytest.raises(RemoteError, match="it is read only"):
            change()
    assert registry.seen == []


# -- registries that hang or refuse --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["/manifests/", "layer", "/token", "storage"])
def test_a_hang_anywhere_costs_the_deadline_at_most(registry: SmallRegistry, at: str) -> None:
    layer, diff_id = packed({"v4/a": os.urandom(100_000)})
    put_image(registry, layer, diff_id)
    listening = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                held.append(listening.accept()[0])
                held[-1].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc")
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    port = listening.getsockname()[1]
    try:
        if at == "storage":
            registry.storage = f"http://127.0.0.1:{port}"
        elif at == "/token":
            registry.realm = f"http://127.0.0.1:{port}/token"
        else:
            wanted = digest_of(layer) if at == "layer" else at
            registry.instead = lambda seen: time.sleep(3) if wanted in seen.path else None
        begin = time.monotonic()
        with pytest.raises(RemoteError, match="did not answer"):
            tier(registry).names("v4/", 1, soon(0.7))
        assert time.monotonic() - begin < 1.5
    finally:
        listening.close()
        for connection in held:
            connection.close()


def test_a_push_to_a_registry_that_hangs_costs_the_deadline_at_most(registry: SmallRegistry, tmp_path: Path) -> None:
    registry.instead = lambda seen: time.sleep(3) if seen.method == "PUT" else None
    begin = time.monotonic()
    with pytest.raises(RemoteError, match="did not answer"):
        push_folder(image_in(tmp_path), tier(registry).label, soon(0.7))
    assert time.monotonic() - begin < 1.5
    assert "latest" not in registry.manifests


@pytest.mark.parametrize("part", ["HEAD", "POST", "PUT blob", "PUT manifest"])
def test_a_registry_that_refuses_a_push_is_told_with_its_code(
    registry: SmallRegistry, tmp_path: Path, part: str
) -> None:
    def refuse(seen: Seen) -> Answer | None:
        method, _, kind = part.partition(" ")
        is_meant = seen.method == method and (not kind or f"/{kind}s/" in seen.path)
        text = b'{"errors":[{"code":"DENIED","message":"secret detail"},{"code":"bad code"}]}'
        return (403, {}, b"" if method == "HEAD" else text) if is_meant else None

    registry.instead = refuse
    with pytest.raises(RemoteError, match="status 403 Forbidden") as caught:
        push_folder(image_in(tmp_path), tier(registry).label, soon())
    assert str(caught.value).endswith("Forbidden" if part == "HEAD" else "Forbidden (DENIED)")
    assert "latest" not in registry.manifests


def test_a_registry_that_keeps_another_manifest_is_told(registry: SmallRegistry, tmp_path: Path) -> None:
    registry.instead = lambda seen: (201, {}, b"") if seen.method == "PUT" and "/manifests/" in seen.path else None
    with pytest.raises(RemoteError, match="does not give the image that it took"):
        push_folder(image_in(tmp_path), tier(registry).label, soon())


def test_a_blob_that_is_there_is_not_sent(registry: SmallRegistry, tmp_path: Path) -> None:
    image = image_in(tmp_path)
    assert push_folder(image, tier(registry).label, soon()).sent > 3000
    registry.seen.clear()
    del registry.manifests["latest"]
    assert push_folder(image, tier(registry).label, soon()).sent == 0
    assert [seen.method for seen in registry.seen if seen.method in ("POST", "PUT")] == ["PUT"]
    registry.seen.clear()
    push_folder(image, tier(registry).label, soon())
    assert {seen.method for seen in registry.seen} == {"HEAD", "GET"}


def test_an_image_is_pushed_under_a_tag(tmp_path: Path) -> None:
    url = f"oci://127.0.0.1:{free_port()}/team/gears@{digest_of(b'')}"
    with pytest.raises(ValueError, match="one is pushed under a tag"):
        push_folder(image_in(tmp_path), url, soon())


def test_a_place_for_uploads_on_another_host_gets_no_credentials(
    registry: SmallRegistry, tmp_path: Path, credentials: Callable[..., None]
) -> None:
    elsewhere: list[Seen] = []

    def take(seen: Seen) -> Answer:
        elsewhere.append(seen)
        registry.blobs[urllib.parse.parse_qs(seen.path.partition("?")[2])["digest"][0]] = seen.body
        return 201, {}, b""

    with serving(take) as host, serving(Tokens(registry).answer) as tokens:
        registry.realm = f"http://{tokens}/token"
        credentials(registry.host, auth=basic("team", "secret"))

        def send_on(seen: Seen) -> Answer | None:
            is_known = seen.headers.get("authorization", "").removeprefix("Bearer ") in registry.tokens
            return (202, {"Location": f"http://{host}/up"}, b"") if seen.method == "POST" and is_known else None

        registry.instead = send_on
        push_folder(image_in(tmp_path), tier(registry).label, soon())
    assert len(elsewhere) == 2
    assert not any("authorization" in seen.headers for seen in elsewhere)
    assert everything_of(registry) == OBJECTS


def everything_of(registry: SmallRegistry) -> dict[str, Any]:
    registry.realm = ""
    return everything(tier(registry))


def test_a_file_of_credentials_that_is_none_is_told_once_a_registry_is_asked(
    registry: SmallRegistry, tmp_path: Path
) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text("secret")
    with pytest.raises(RemoteError, match=r"config.json` is no JSON"):
        tier(registry).names("v4/", 1, soon())
    assert registry.seen == []
