"""Manifests, indexes and configs: which kinds are read, and that all else is refused by its type."""

from __future__ import annotations

import json
import platform
from typing import Any

import pytest

from gearcache.cache.remote.oci.documents import (
    CONFIG_TYPE,
    INDEX_TYPE,
    INDEX_TYPES,
    LAYER_TYPE,
    MANIFEST_TYPE,
    MANIFEST_TYPES,
    MAX_LAYER_SIZE,
    Descriptor,
    ImageError,
    architecture_of,
    digest_of,
    encode,
    media_type_of,
    read_config,
    read_index,
    read_manifest,
    verified,
)

DIGEST = digest_of(b"layer")
LAYER = {"mediaType": LAYER_TYPE, "digest": DIGEST, "size": 5}
CONFIG = {"mediaType": CONFIG_TYPE, "digest": digest_of(b"config"), "size": 6}
MANIFEST = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": CONFIG, "layers": [LAYER]}
DOCKER = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
    "config": {**CONFIG, "mediaType": "application/vnd.docker.container.image.v1+json"},
    "layers": [{**LAYER, "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip"}],
}


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}


@pytest.mark.parametrize(
    "document", [MANIFEST, DOCKER, without(MANIFEST, "mediaType"), {**MANIFEST, "annotations": {}}]
)
def test_manifests_of_oci_and_docker_are_read(document: dict[str, Any]) -> None:
    config, layer = read_manifest(encode(document))
    assert (config.digest, config.size) == (CONFIG["digest"], 6)
    assert (layer.digest, layer.size) == (DIGEST, 5)
    assert media_type_of(encode(document)) in MANIFEST_TYPES


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mediaType": "application/vnd.oci.artifact.manifest.v1+json"}, "manifest is of the type"),
        ({"mediaType": INDEX_TYPE}, "manifest is of the type"),
        ({"schemaVersion": 1}, "another kind"),
        ({"layers": []}, "0 layers"),
        ({"layers": [LAYER, LAYER]}, "2 layers"),
        ({"layers": None}, "no layers"),
        ({"layers": [{**LAYER, "mediaType": "application/cache.vllm.content.layer.v1+vllm"}]}, "layer is of the type"),
        ({"layers": [{**LAYER, "mediaType": "application/vnd.oci.image.layer.v1.tar+zstd"}]}, "layer is of the type"),
        ({"layers": [{**LAYER, "size": -1}]}, "of -1 bytes"),
        ({"layers": [{**LAYER, "size": True}]}, "without a type"),
        ({"layers": [{**LAYER, "size": MAX_LAYER_SIZE + 1}]}, "more than is read"),
        ({"layers": [{**LAYER, "digest": "md5:0"}]}, "where a sha256 belongs"),
        ({"layers": [{**LAYER, "digest": DIGEST + "/../x"}]}, "where a sha256 belongs"),
        ({"layers": ["x"]}, "without a type"),
        ({"config": None}, "without a type"),
        ({"config": {**CONFIG, "mediaType": "application/vnd.oci.empty.v1+json"}}, "config is of the type"),
        ({"config": {**CONFIG, "size": 1 << 30}}, "more than is read"),
    ],
)
def test_other_manifests_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ImageError, match=told):
        read_manifest(encode({**MANIFEST, **changes}))


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    for read in (read_manifest, read_index, read_config, media_type_of):
        with pytest.raises(ImageError):
            read(data)


def listed(*platforms: tuple[str, str] | None, **changes: Any) -> bytes:
    manifests = []
    for number, found in enumerate(platforms):
        item: dict[str, Any] = {"mediaType": MANIFEST_TYPE, "digest": digest_of(b"%d" % number), "size": 1, **changes}
        if found is not None:
            item["platform"] = {"os": found[0], "architecture": found[1]}
        manifests.append(item)
    return encode({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests})


HERE = ("linux", architecture_of(platform.machine()))


@pytest.mark.parametrize(
    ("platforms", "chosen"),
    [
        ([None], 0),
        ([("linux", "s390x")], 0),
        ([("linux", "s390x"), HERE], 1),
        ([("unknown", "unknown"), HERE, ("unknown", "unknown")], 1),
    ],
)
def test_an_index_with_one_image_for_this_machine_is_read(platforms: list[Any], chosen: int) -> None:
    for kind in INDEX_TYPES:
        data = encode({**json.loads(listed(*platforms)), "mediaType": kind})
        assert read_index(data).digest == digest_of(b"%d" % chosen)
        assert media_type_of(data) == kind
    untold = encode(without(json.loads(listed(*platforms)), "mediaType"))
    assert media_type_of(untold) == INDEX_TYPE


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (listed(), "has 0 for this machine"),
        (listed(HERE, HERE), "has 2 for this machine"),
        (listed(("linux", "s390x"), ("linux", "ppc64le")), "has 0 for this machine"),
        (listed(HERE, mediaType=INDEX_TYPE), "manifest is of the type"),
        (listed(HERE, digest="sha256:0"), "where a sha256 belongs"),
        (encode({"schemaVersion": 2, "mediaType": INDEX_TYPE}), "names no manifests"),
        (encode(MANIFEST), "index is of the type"),
    ],
)
def test_other_indexes_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(ImageError, match=told):
        read_index(data)


def test_a_config_says_the_content_and_the_labels() -> None:
    rootfs = {"type": "layers", "diff_ids": [DIGEST]}
    found = read_config(encode({"rootfs": rootfs, "config": {"Labels": {"a": "b", "c": 1}}}))
    assert (found.diff_id, found.labels) == (DIGEST, {"a": "b"})
    assert read_config(encode({"rootfs": rootfs, "config": {"Labels": None}})).labels == {}
    for wrong in (
        {},
        {"rootfs": {"diff_ids": []}},
        {"rootfs": {"diff_ids": [DIGEST] * 2}},
        {"rootfs": {"diff_ids": [1]}},
    ):
        with pytest.raises(ImageError, match="content of one layer"):
            read_config(encode(wrong))


def test_bytes_are_those_of_their_descriptor_or_refused() -> None:
    assert verified(b"layer", Descriptor("", DIGEST, 5)) == b"layer"
    for data, size in ((b"other", 5), (b"layer", 4)):
        with pytest.raises(ImageError, match="other bytes"):
            verified(data, Descriptor("", DIGEST, size))
