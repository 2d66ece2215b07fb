"""Files of a case: secrets out of texts of any size, copies to and from a node, and serials that are none."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from rackready.campaign.rma import scrubbed
from rackready.campaign.rma.parts import serial
from rackready.campaign.rma.scrubbed import NotWholeError, scrub_file
from rackready.drivers import remote_copy
from rackready.drivers.local import Local
from rackready.drivers.remote import Remote
from rackready.drivers.remote_copy import RemoteCopyError, fetch, send
from rackready.drivers.ssh.target import KeyLogin, SshTarget
from tests.gates.sshserver import serve

MOST = 1 << 30
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "A" * 70 + "\n" * 3 + "B" * 70 + "\n-----END OPENSSH PRIVATE KEY-----\n"


def test_a_text_loses_its_secrets_wherever_a_piece_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"one\n{KEY}two password=hunter2 \u00e9\nthree Swordfish-99 four\n"
    clean = "one\n[scrubbed]\ntwo password=[scrubbed] \u00e9\nthree [scrubbed] four\n"
    for piece in range(1, 60):
        monkeypatch.setattr(scrubbed, "PIECE", piece)
        path = tmp_path / "x.log"
        path.write_text(text, encoding="utf-8")
        assert scrub_file(path, ["Swordfish-99"], most=MOST)
        assert path.read_text(encoding="utf-8") == clean, piece


def test_gzip_members_become_one_and_a_cut_one_is_kept_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(b"token=abcdefgh1\n") + gzip.compress(b"two\n" * 1000)[:-12])
    assert scrub_file(path, [], most=MOST)
    text = gzip.decompress(path.read_bytes())
    assert text.startswith(b"token=[scrubbed]\ntwo\ntwo\n")
    again = path.read_bytes()
    assert scrub_file(path, [], most=MOST)
    assert path.read_bytes() == again, "no time and no name is in it"


def test_bytes_stay_as_they_are_and_a_bad_one_in_a_log_hides_nothing(tmp_path: Path) -> None:
    blob, log = tmp_path / "dump.bin", tmp_path / "x.log"
    blob.write_bytes(b"\0password=hunter2")
    log.write_bytes(b"\0\xff password=hunter2\n")
    assert not scrub_file(blob, [], most=MOST)
    assert scrub_file(log, [], most=MOST)
    assert (blob.read_bytes(), log.read_bytes()) == (b"\0password=hunter2", b"\0\xff password=[scrubbed]\n")


def test_what_unpacks_to_too_much_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "bomb.log.gz"
    path.write_bytes(gzip.compress(b"x\n" * (2 << 20)))
    with pytest.raises(NotWholeError, match=r"^its text is larger than 1 MiB$"):
        scrub_file(path, [], most=1 << 20)
    path.write_bytes(b"\x1f\x8b damaged")
    with pytest.raises(NotWholeError, match=r"^its compressed data is damaged: "):
        scrub_file(path, [], most=MOST)


@pytest.mark.parametrize("size", [0, 1, 3000, 4096, 10000])
def test_files_are_copied_there_and_back_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(remote_copy, "PIECE", 1 << 20)
    data = bytes(range(256)) * (size * 4)
    source, there, back = tmp_path / "source", tmp_path / "it's there", tmp_path / "back"
    source.write_bytes(data)
    send(Local(), "node01", source, str(there), deadline=time.monotonic() + 60)
    assert fetch(Local(), "node01", str(there), back, most=MOST, deadline=time.monotonic() + 60) == len(data)
    assert back.read_bytes() == data


def test_files_of_several_pieces_are_copied_over_ssh(tmp_path: Path) -> None:
    data = bytes(range(251)) * 36000  # 9 MB: two pieces
    source, there, back = tmp_path / "source", tmp_path / "there", tmp_path / "back"
    source.write_bytes(data)
    with serve(tmp_path) as server:
        target = SshTarget(
            "node01", "127.0.0.1", server.port, "tester", KeyLogin(server.client_key), server.known_hosts
        )
        remote = Remote({"node01": target})
        try:
            send(remote, "node01", source, str(there), deadline=time.monotonic() + 120)
            fetch(remote, "node01", str(there), back, most=MOST, deadline=time.monotonic() + 120)
        finally:
            remote.close()
    assert back.read_bytes() == data


def test_a_copy_is_refused_when_it_is_late_large_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * (3 << 20))
    for most, late, text in (
        (2 << 20, 60, f"node01: {path} - Expected: at most 2 MiB Actual: 3 MiB."),
        (MOST, -1, f"node01: {path} - Expected: copied within its time limit Actual: not whole by then."),
    ):
        with pytest.raises(RemoteCopyError) as error:
            fetch(Local(), "node01", str(path), tmp_path / "y", most=most, deadline=time.monotonic() + late)
        assert str(error.value) == text
    path.unlink()
    with pytest.raises(RemoteCopyError, match=r"Expected: copied Actual: exit code 1: .*: No such file"):
        fetch(Local(), "node01", str(path), tmp_path / "y", most=MOST, deadline=time.monotonic() + 60)


def test_a_file_that_changes_while_it_is_copied_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        remote_copy, "_READ", 'dd if="$1" bs=1048576 skip="$2" count="$3" status=none | tr x y | base64'
    )
    path = tmp_path / "x"
    path.write_bytes(b"x" * 30)
    with pytest.raises(RemoteCopyError, match=r": it changed, or was damaged\.$"):
        fetch(Local(), "node01", str(path), tmp_path / "y", most=MOST, deadline=time.monotonic() + 60)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("1650223001234", "1650223001234"), (" X1 ", "X1"), (None, ""), ("0000-0000", ""), ("N/A", ""),
        ("unread:gpu3", ""), ("To Be Filled By O.E.M.", ""), ("Not Specified", ""), (17, "17"),
        ("[N/A]", ""), ("O.E.M.", ""), ("System Serial Number", ""), ("XXXXXXXX", ""), ("0123456789", ""),
        ("12345678", ""), ("123", "123"), ("[Not Supported]", ""), ("FFFFFFFF", ""),
    ],
)  # fmt: skip
def test_what_firmware_writes_where_it_knows_no_serial_is_none(told: object, wanted: str) -> None:
    assert serial(told) == wanted


@pytest.mark.parametrize("secret", ['pa"ss\\word-9', "p@ss/word+9", "schlüssel-99"])
def test_a_password_is_hidden_as_json_and_urls_have_it(tmp_path: Path, secret: str) -> None:
    path = tmp_path / "log.json"
    texts = {"Message": f"login of admin {secret} failed", "url": f"x?y={quote(secret, safe='')}"}
    path.write_text(f"{json.dumps(texts)}\n{json.dumps(texts, ensure_ascii=False)}\n{secret}\n", encoding="utf-8")
    assert scrub_file(path, [secret], most=MOST)
    text = path.read_text(encoding="utf-8")
    assert text.count("[scrubbed]") == 5
    assert not any(form in text for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")))
