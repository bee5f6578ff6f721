"""References of images: what they mean, what is refused, and when a registry is asked without encryption."""

from __future__ import annotations

import pytest

from gearcache.cache.remote.oci.reference import parse_reference
from gearcache.cache.remote.urls import TierURL, parse_urls
from gearcache.errors import OptionError

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("url", "host", "repository", "name"),
    [
        ("oci://registry.example/team/gears:v7", "registry.example", "team/gears", "v7"),
        ("oci://registry.example:5000/gears", "registry.example:5000", "gears", "latest"),
        (f"oci://r.example/a/b/c@{DIGEST}", "r.example", "a/b/c", DIGEST),
        (f"oci://r.example/a:v1@{DIGEST}", "r.example", "a", DIGEST),
        ("oci://Registry.Example/a__b/c---d.e_0", "registry.example", "a__b/c---d.e_0", "latest"),
        ("oci://docker.io/gears", "registry-1.docker.io", "library/gears", "latest"),
        ("oci://docker.io/team/gears:1", "registry-1.docker.io", "team/gears", "1"),
    ],
)
def test_a_reference_names_registry_repository_and_image(url: str, host: str, repository: str, name: str) -> None:
    found = parse_reference(url)
    assert (found.host, found.repository, found.name) == (host, repository, name)
    assert parse_reference(found.label) == found
    assert (found.is_digest, found.origin) == (name == DIGEST, f"https://{host}")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("oci://registry.example", "`` is no repository"),
        ("oci://registry.example/Team", "`Team` is no repository"),
        ("oci://registry.example/a/../b", "is no repository"),
        ("oci://registry.example/a//b", "is no repository"),
        ("oci://registry.example/a%2e", "is no repository"),
        ("oci://registry.example/a..b", "is no repository"),
        ("oci://registry.example/a___b", "is no repository"),
        ("oci://registry.example/a-_b", "is no repository"),
        ("oci://registry.example/-a", "is no repository"),
        ("oci://registry.example/a.", "is no repository"),
        ("oci://registry.example/a\u00e9", "is no repository"),
        ("oci://registry.example/a:v\u00e9", "is no tag"),
        ("oci://registry.example/a:-v", "`-v` is no tag"),
        ("oci://registry.example/a:" + "v" * 129, "is no tag"),
        ("oci://registry.example/a@sha256:12", "`sha256:12` is no digest"),
        ("oci://registry.example/a@md5:12", "is no digest"),
        ("oci://registry.example:99999/a", "[Pp]ort"),
        ("oci://name:secret@registry.example/a", "`oci://registry.example` has a name or password"),
        ("https://registry.example/a", "names no image"),
        ("oci:///a", "names no image"),
    ],
)
def test_what_is_no_reference_is_refused(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        parse_reference(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(OptionError) as refused:
        parse_urls(url.replace("https:", "oci:").replace("/a", "/A"), "GEARCACHE_REMOTES")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("localhost:5000", True),
        ("127.0.0.1", True),
        ("127.9.9.9:1", True),
        ("[::1]:5000", True),
        ("a.localhost", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("registry", False),
    ],
)
def test_without_encryption_only_this_host_is_asked_unless_the_user_says_so(host: str, plain: bool) -> None:
    assert parse_reference(f"oci://{host}/a").insecure is plain
    for insecure in (True, False):
        assert parse_reference(f"oci://{host}/a", insecure).insecure is insecure


def test_a_tier_is_read_only_and_has_the_setting_insecure() -> None:
    (tier,) = parse_urls("oci://registry.example/team/gears:v7?insecure=1&budget=60", "GEARCACHE_REMOTES")
    settings = (("insecure", "1"),)
    assert tier == TierURL("oci://registry.example/team/gears:v7", read_only=True, budget=60, options=settings)
    remote = tier.open()
    assert (remote.label, remote.creates) == ("oci://registry.example/team/gears:v7", "no")
    assert remote._reference.origin == "http://registry.example"  # type: ignore[attr-defined]
    (pinned,) = parse_urls(f"oci://registry.example/gears@{DIGEST}", "GEARCACHE_REMOTES")
    assert pinned.open().label.endswith(DIGEST)
    for query, told in (("insecure=yes", "`insecure` is 'yes'; it must be 0 or 1"), ("x=1", "has no setting `x`")):
        with pytest.raises(OptionError, match=told):
            parse_urls(f"oci://registry.example/a?{query}", "GEARCACHE_REMOTES")
