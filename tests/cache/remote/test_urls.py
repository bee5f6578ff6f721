"""Tiers as users write them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gearcache.cache.remote.breaker import FAULTS, REST_SECONDS, Breaker
from gearcache.cache.remote.urls import BUDGET_SECONDS, TierURL, parse_urls
from gearcache.errors import OptionError


def test_tiers_are_in_order_with_their_settings() -> None:
    text = "redis://cache:6379/3 s3://bucket/team?read_only=1&budget=2.5&region=eu-1 folder:/mnt/share?read_only=0"
    assert parse_urls(text, "GEARCACHE_REMOTES") == [
        TierURL("redis://cache:6379/3"),
        TierURL("s3://bucket/team", read_only=True, budget=2.5, options=(("region", "eu-1"),)),
        TierURL("folder:/mnt/share"),
    ]
    assert parse_urls(["https://host/path"], "remotes") == [TierURL("https://host/path", read_only=True)]
    assert parse_urls(None, "remotes") == parse_urls("", "remotes") == parse_urls([], "remotes") == []
    assert BUDGET_SECONDS == 10


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ftp://host/x", r"names the tier `ftp://host/x`; a tier begins with folder:, s3:"),
        ("S3://host/x?secret_access_key=secret", "names the tier `S3://host/x`; a tier begins with"),
        ("ftp://name:secret@host", "names the tier `ftp:…`"),
        ("folder:", "`folder:` without a path"),
        ("redis://[::1/0", r"`redis://\[::1/0` with a host or port that is none"),
        ("s3://bucket/x?endpoint=http://[::1", "`s3:` with a host or port that is none"),
        ("s3://bucket/x?endpoint=u:secret@host", "`s3:` has an `endpoint` that is none: it is `https://host:port`"),
        ("redis://host/main", "`redis:` has the database `/main`; it must be a number"),
        ("https://name:secret@host/x", "`https:` has a name or password, which no request would send"),
        ("s3://key:secret@bucket/x", "`s3:` has a name or password in its URL; credentials of buckets belong into"),
        ("oci://h/x:secret@y", "names the tier `oci:…`; a tier begins with"),
        ("redis://h?secret", "the tier `redis://h` has no setting `…`"),
        ("folder:/x?read_only=yes", "`read_only` is 'yes'; it must be 0 or 1"),
        ("folder:/x?budget=0", "`budget` is '0'; it must be seconds"),
        ("redis://h?ttl=3", "the tier `redis://h` has no setting `ttl`; it has read_only, unsigned and budget"),
        ("redis://u:secret@h/1?ttl=3", "the tier `redis://u:…@h/1` has no setting `ttl`"),
        ("redis://:secret@h:99999/1", "the tier `redis://:…@h:99999/1` with a host or port that is none"),
        ("redis://u:sec/ret@h/1", "the tier `redis:` with a host or port that is none"),
        ("redis://u:7?secret@h/1", "the tier `redis:` has no setting `…`"),
        (7, "holds something of type int; a tier is a text"),
    ],
)
def test_what_is_no_tier_is_refused_with_the_reason(text: object, told: str) -> None:
    with pytest.raises(OptionError, match=told) as caught:
        parse_urls([text], "option `remotes`")  # type: ignore[list-item]
    assert "secret" not in str(caught.value)


def test_some_faults_in_a_row_keep_all_processes_from_asking_for_a_while(tmp_path: Path) -> None:
    first, second, other = Breaker(tmp_path, "a"), Breaker(tmp_path, "a"), Breaker(tmp_path, "b")
    for number in range(FAULTS):
        assert not second.is_open()
        (first, second)[number % 2].fault()
    assert first.is_open()
    assert second.is_open()
    assert not other.is_open()
    (path,) = tmp_path.iterdir()
    old = time.time() - REST_SECONDS - 1
    os.utime(path, (old, old))
    assert not first.is_open()
    first.fault()  # the one try after the rest
    assert second.is_open()
    second.success()
    assert not first.is_open()
    first.fault()
    assert not first.is_open()


def test_buckets_at_two_places_are_two_tiers() -> None:
    tiers = parse_urls(
        [f"s3://team/gears{place}" for place in ("", "?endpoint=http://a:9000", "?endpoint=https://b/x")], "x"
    )
    assert [tier.label for tier in tiers] == [
        "s3://team/gears",
        *(f"s3://team/gears?endpoint={n}" for n in ("a:9000", "b")),
    ]
    assert [tier.open().label for tier in tiers] == [tier.label for tier in tiers]
