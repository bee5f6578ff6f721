"""`GEARCACHE_TRUSTED_KEYS`: what it takes, as a text and as a file, and what it refuses."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from gearcache.cache.signatures.trusted_keys import trusted_keys
from gearcache.errors import OptionError, UnsafePath
from tests.support.signing import Pair

VARIABLE = "GEARCACHE_TRUSTED_KEYS"
DAY = 1_793_491_200.0  # 2026-11-01


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    return [Pair(tmp_path, name).trusted.text for name in ("build-2025", "build-2026")]


def refused(text: str) -> str:
    with pytest.raises(OptionError) as caught:
        trusted_keys({VARIABLE: text})
    assert VARIABLE in str(caught.value)
    return str(caught.value)


def test_keys_in_the_variable_have_blanks_between_them_and_their_time_behind_semicolons(lines: list[str]) -> None:
    old, new = lines
    found = trusted_keys({VARIABLE: f" {old};until=2026-11-01  {new};from=2026-11-01T12:00:00Z;until=2027-01-01\n"})
    assert [key.text for key in found] == lines
    assert [(key.start, key.end) for key in found] == [(None, DAY), (DAY + 43200, DAY + 61 * 86400)]
    assert found[1].time_text == "from 2026-11-01T12:00:00 until 2027-01-01 (UTC)"
    assert trusted_keys({}) == trusted_keys({VARIABLE: " "}) == ()


def test_keys_in_a_file_have_a_line_each(lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = lines
    file = tmp_path / "trusted"
    file.write_text(f"# of the team\n\n  {old}\tuntil=2026-11-01  # stolen\n{new};from=2026-11-01\r\n")
    found = trusted_keys({VARIABLE: str(file)})
    assert [(key.name, key.start, key.end) for key in found] == [("build-2025", None, DAY), ("build-2026", DAY, None)]
    (tmp_path / "link").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    assert trusted_keys({VARIABLE: "link"}) == trusted_keys({VARIABLE: "./trusted"}) == found
    file.write_text("# none\n")
    assert trusted_keys({VARIABLE: str(file)}) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("{old};", "", id="nothing behind a semicolon is nothing"),
        pytest.param("build:AAAA", "which is no public key of 32 bytes", id="short"),
        pytest.param("hmac:AAAA", "and not `hmac`", id="name of the other kind"),
        pytest.param("{old};from=yesterday", "says `from=yesterday` of the key `build-2025`; a day", id="day"),
        pytest.param("{old};from=2026-11-02;until=2026-11-01", "until a moment before its first", id="empty time"),
        pytest.param("{old} {old}", "lists `build-2025`, whose name is there already", id="name twice"),
        pytest.param("{old} from=2026-11-01", "names a key `from=2026-11-01`", id="blank before the time"),
        pytest.param("/no/such/file", "is `/no/such/file`, which cannot be read: No such file", id="no file"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str, words: str, lines: list[str]) -> None:
    given = text.replace("{old}", lines[0]).replace("{key}", lines[0].partition(":")[2])
    if words:
        assert words in refused(given)
    else:
        assert len(trusted_keys({VARIABLE: given})) == 1


def test_a_private_key_in_the_wrong_place_is_not_shown(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    secret = pair.path.read_text().splitlines()[1]
    for value in (pair.path.read_text(), str(pair.path)):
        assert "holds a private key" in refused(value)
        assert secret not in refused(value)


ORDER_EIGHT = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), byteorder="little"
)


@pytest.mark.parametrize(
    "number",
    [0, 1, 2**255 - 19, ORDER_EIGHT, ORDER_EIGHT | 1 << 255],
)
def test_a_key_for_which_anybody_can_sign_is_refused(number: int) -> None:
    """Zeros, as somebody may leave in a template, among them."""
    text = base64.b64encode(number.to_bytes(32, "little")).decode()
    assert "for which anybody can sign" in refused(f"build:{text}")


@pytest.mark.parametrize("fault", ["writable", "folder above", "foreign"])
def test_a_file_that_others_may_change_is_not_used(fault: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    file = tmp_path / "place" / "trusted"
    file.write_text("\n".join(lines))
    file.chmod(0o644)
    assert len(trusted_keys({VARIABLE: str(file)})) == 2
    if fault == "writable":
        file.chmod(0o666)
    elif fault == "folder above":
        file.parent.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(file, 54321, 54321)
    else:
        pytest.skip("only root can give files away")
    with pytest.raises(UnsafePath, match="only you or root may write it") as caught:
        trusted_keys({VARIABLE: str(file)})
    assert str(file) in str(caught.value)
