"""Applied facts: stored per device, private and atomic; damage is reported."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rackready.ledger.applied import FILE, AppliedError, read, record

PLANNED = {"node a": {"unit": "1"}, "node b": {"unit": "2"}, "switch c": {"model": "x"}}


def test_nothing_was_applied_at_first(tmp_path: Path) -> None:
    assert read(tmp_path).facts == {}
    assert read(tmp_path).at is None
    assert list(tmp_path.iterdir()) == [], "reading makes nothing"


def test_only_what_is_done_is_kept_and_stays(tmp_path: Path) -> None:
    record(tmp_path, PLANNED, ["node a"], "c1")
    record(tmp_path, PLANNED | {"node a": {"unit": "9"}}, ["switch c"], "c2")
    found = read(tmp_path)
    assert found.facts == {"node a": {"unit": "1"}, "switch c": {"model": "x"}}
    assert found.campaigns == {"node a": "c1", "switch c": "c2"}
    assert found.at is not None


def test_what_the_site_no_longer_names_is_forgotten_once_all_that_it_names_is_applied(tmp_path: Path) -> None:
    record(tmp_path, PLANNED, list(PLANNED), "c1")
    smaller = {"node a": {"unit": "1"}, "node b": {"unit": "7"}}
    assert "switch c" in record(tmp_path, smaller, ["node a"], "c2").facts, "node b is not as planned yet"
    assert set(record(tmp_path, smaller, ["node b"], "c3").facts) == {"node a", "node b"}


def test_file_is_private_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    record(tmp_path, PLANNED, ["node a"], "c1")
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_failed_write_keeps_the_earlier_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, PLANNED, ["node a"], "c1")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rackready.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        record(tmp_path, PLANNED, ["node b"], "c2")
    assert set(read(tmp_path).facts) == {"node a"}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_one_wrong_byte_anywhere_is_damage_or_says_nothing(tmp_path: Path) -> None:
    """Bytes 4 to 9 of gzip's header tell when and where it was packed (RFC 1952): unread, and without a checksum."""
    record(tmp_path, PLANNED, list(PLANNED), "c1")
    whole, told = (tmp_path / FILE).read_bytes(), read(tmp_path)
    for place, byte in enumerate(whole):
        (tmp_path / FILE).write_bytes(whole[:place] + bytes([byte ^ 0xFF]) + whole[place + 1 :])
        if place in range(4, 10):
            assert read(tmp_path) == told
            continue
        with pytest.raises(AppliedError, match=r"Actual: (error|BadGzipFile|EOFError|UnicodeDecodeError): "):
            read(tmp_path)


def spoilt(change: dict[str, object]) -> bytes:
    entry = {"campaign": "c", "digest": "0", "facts": {"unit": "1"}}
    return gzip.compress(
        json.dumps({"schema": "rackready/applied/v1", "at": "x", "devices": {"node a": entry}} | change).encode()
    )


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"no gzip", "BadGzipFile"),
        (gzip.compress(b"{", mtime=0)[:-4], "EOFError"),
        (gzip.compress(b"[]", mtime=0), "TypeError"),
        (spoilt({"schema": "other"}), "ValueError: schema other"),
        (spoilt({}), "ValueError: node a does not match its digest"),
    ],
)
def test_damaged_record_is_refused_with_the_way_out(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(AppliedError) as caught:
        read(tmp_path)
    text = str(caught.value)
    assert text.startswith(
        f"{tmp_path / FILE} - Expected: the record of an earlier deploy (rackready/applied/v1) Actual: {what}"
    )
    assert text.endswith("Remove it: the next deploy records everything again. Until then all is shown as added.")
