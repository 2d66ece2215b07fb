"""Passwords in archives that keep every byte: found in any depth, in texts of any size, and never passed over."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.campaign.rma.archived import secret_in
from rackready.campaign.rma.scrubbed import PIECE, NotWholeError

SECRET = 'open"sesame'
MOST = 16 << 20


def zipped(data: bytes, name: str = "a.log") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("empty/", b"")
        packed.writestr(name, data)
    return out.getvalue()


def tarred(data: bytes, name: str = "b.log") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as packed:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        packed.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def written(root: Path, data: bytes) -> Path:
    path = root / "logs"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("pack", "place"),
    [
        (lambda data: data, "logs"),
        (zipped, "logs: a.log"),
        (lambda data: gzip.compress(tarred(data)), "logs: b.log"),
        (lambda data: zipped(lzma.compress(tarred(data)), "dump.tar.xz"), "logs: dump.tar.xz: b.log"),
        (lambda data: tarred(bz2.compress(data), "c.bz2"), "logs: c.bz2"),
    ],
)
@pytest.mark.parametrize("text", [SECRET, r"open\"sesame", "open%22sesame"])
def test_a_password_is_found_in_each_form_of_archive_and_text(
    tmp_path: Path, pack: Callable[[bytes], bytes], place: str, text: str
) -> None:
    assert secret_in(written(tmp_path, pack(f"user {text} end".encode())), [SECRET, "abc"], most=MOST) == place
    assert secret_in(written(tmp_path, pack(b"user abc end")), [SECRET, "abc"], most=MOST) == ""


def test_a_password_across_two_reads_is_found(tmp_path: Path) -> None:
    data = b"x" * (PIECE - 4) + SECRET.encode() + b"x" * PIECE
    assert secret_in(written(tmp_path, zipped(data)), [SECRET], most=MOST) == "logs: a.log"


def test_what_cannot_be_looked_through_is_said(tmp_path: Path) -> None:
    whole = gzip.compress(b"x" * 4096)
    nested = b"x"
    for _ in range(6):
        nested = gzip.compress(nested)
    cases = {
        whole[:-12]: "Compressed file ended before the end-of-stream marker was reached",
        zipped(b"x" * (MOST + 1)): "it unpacks to more than rma.limit_mib allows",
        nested: "logs: more than 4 archives within each other",
        b"PK\x03\x04 and no more": "logs: File is not a zip file",
    }
    for data, why in cases.items():
        with pytest.raises(NotWholeError) as error:
            secret_in(written(tmp_path, data), [SECRET], most=MOST)
        assert why in str(error.value)
