"""Captures that were damaged in transit, or whose manifest contradicts itself, are refused with a reason."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any, Literal

import pytest

from rackready.drivers.process import OUTPUT_LIMIT
from rackready.gates.records import captured_archive
from rackready.gates.records.captured import CaptureRefusedError, read

CORRECT = "Correct it: docs/howto/gates.md shows a manifest."
AGAIN = "Import the complete capture again."
Packing = Literal["w", "w:gz", "w:bz2", "w:xz"]
CUT = "Actual: not a tar archive, or cut off or damaged"


def manifest(**changed: Any) -> dict[str, Any]:
    one = {
        "node": "node01",
        "gate": "g",
        "key": "k",
        "exit_code": 0,
        "file": "out.txt",
        "time": "2026-11-22T09:00:00+00:00",
    }
    return {"schema": "rackready/captured/v1", "by": "field team", "outputs": [one | changed]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "captured"
    made.mkdir()
    (made / "out.txt").write_text("said", encoding="utf-8")
    (made / "manifest.json").write_text(json.dumps(manifest()), encoding="utf-8")
    return made


def refused(source: Path) -> str:
    with pytest.raises(CaptureRefusedError) as refusal:
        read(source)
    assert str(refusal.value).startswith(f"{source}: {len(refusal.value.messages)} problem")
    return "\n".join(map(str, refusal.value.messages))


def packed(folder: Path, mode: Packing = "w:gz") -> Path:
    archive = folder.parent / "captured.tar"
    with tarfile.open(archive, mode) as tar:
        tar.add(folder, arcname="captured")
    return archive


# the manifest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"file": "absent.json"},
            (
                "outputs[0].file: absent.json - Expected: a file beside the manifest "
                f"Actual: No such file or directory. {AGAIN}"
            ),
        ),
        (
            {"file": "../state.sqlite"},
            (
                "outputs[0].file: ../state.sqlite - Expected: a file beside the manifest "
                f"Actual: a path that leads outside. {AGAIN}"
            ),
        ),
        (
            {"file": "/etc/hostname"},
            (
                "outputs[0].file: /etc/hostname - Expected: a file beside the manifest "
                f"Actual: a path that leads outside. {AGAIN}"
            ),
        ),
        ({"file": "."}, f"outputs[0].file: . - Expected: a file beside the manifest Actual: Is a directory. {AGAIN}"),
        (
            {"time": "2026-11-22T09:00:00"},
            (
                "manifest.json: outputs[0].time - Expected: a time with its zone, such as Z "
                f"Actual: '2026-11-22T09:00:00'. {CORRECT}"
            ),
        ),
        (
            {"time": 5},
            f"manifest.json: outputs[0].time - Expected: a time such as 2026-01-31T12:00:00Z Actual: 5. {CORRECT}",
        ),
        (
            {"time": "5"},
            (
                "manifest.json: outputs[0].time - Expected: a time since 2026-11-21, when rackready began Actual: '5'. "
                f"{CORRECT}"
            ),
        ),
        (
            {"time": "0001-01-01T00:00:00+14:00"},
            (
                "manifest.json: outputs[0].time - Expected: a time since 2026-11-21, when rackready began "
                f"Actual: '0001-01-01T00:00:00+14:00'. {CORRECT}"
            ),
        ),
        ({"exit": 0}, f"manifest.json: outputs[0].exit - Expected: no key of that name Actual: 0. {CORRECT}"),
        (
            {"exit_code": False},
            f"manifest.json: outputs[0].exit_code - Expected: a whole number Actual: false. {CORRECT}",
        ),
        ({"exit_code": "0"}, f"manifest.json: outputs[0].exit_code - Expected: a whole number Actual: '0'. {CORRECT}"),
        (
            {"exit_code": 256},
            f"manifest.json: outputs[0].exit_code - Expected: at most 255 Actual: 256. {CORRECT}",
        ),
        (
            {"exit_code": {"code": 0}},
            f"manifest.json: outputs[0].exit_code - Expected: a whole number Actual: a mapping. {CORRECT}",
        ),
        (
            {"exit_code": "http://carol:word@host"},
            (f"manifest.json: outputs[0].exit_code - Expected: a whole number Actual: 'http://***@host'. {CORRECT}"),
        ),
        ({"file": ["out.txt"]}, f"manifest.json: outputs[0].file - Expected: text Actual: a list. {CORRECT}"),
        (
            {"seconds": -1},
            f"manifest.json: outputs[0].seconds - Expected: at least 0 Actual: -1. {CORRECT}",
        ),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(folder: Path, change: dict[str, Any], problem: str) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest(**change)), encoding="utf-8")
    assert refused(folder) == problem


@pytest.mark.parametrize(
    ("written", "actual"),
    [
        (b'{"schema": ', "JSON cut off or damaged at line 1 column 12"),
        (b"", "empty output"),
        (b"[" * 300_000, "JSON nested without end"),
        (b'{"schema": ' + b"9" * 6000 + b"}", "JSON with a number of more digits than Python reads"),
        (
            json.dumps(manifest()).replace('"exit_code": 0', '"exit_code": 1, "exit_code": 0').encode(),
            "key 'exit_code' twice in one JSON object",
        ),
        (
            json.dumps(manifest()).replace('"exit_code": 0', '"exit_code": 0, "seconds": NaN').encode(),
            "NaN where JSON has a number",
        ),
    ],
    ids=["cut", "empty", "deep", "digits", "twice", "nan"],
)
def test_a_manifest_that_is_no_plain_json_is_refused(folder: Path, written: bytes, actual: str) -> None:
    (folder / "manifest.json").write_bytes(written)
    assert refused(folder) == f"manifest.json - Expected: JSON Actual: {actual}. {CORRECT}"


def test_a_manifest_in_another_encoding_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"\xff\xfe{\0")
    assert refused(folder) == f"manifest.json - Expected: JSON in UTF-8 Actual: byte 0xff at offset 0. {AGAIN}"
    (folder / "manifest.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(manifest()).encode())
    assert read(folder).manifest.by == "field team", "editors write a mark of byte order"


@pytest.mark.parametrize("name", ["a\0b", "a\x1b[2J", "a\nb"])
def test_a_file_name_with_control_characters_is_refused_without_printing_them(folder: Path, name: str) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest(file=name)), encoding="utf-8")
    said = refused(folder)
    assert said.startswith("manifest.json: outputs[0].file - Expected: ")
    assert repr(name) in said


def test_a_file_name_of_half_a_character_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest(file="a\ud800b")), encoding="utf-8")
    assert (
        refused(folder)
        == f"manifest.json - Expected: JSON Actual: half a character (\\ud800 alone) in a JSON string. {CORRECT}"
    )


# files -------------------------------------------------------------------------------------------------------------


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    step = "Name the archive that collect.py packed, or capture again."
    where = "manifest.json - Expected: a folder, manifest or tar archive that has it"
    assert refused(tmp_path) == f"{where} Actual: No such file or directory. {step}"
    assert refused(tmp_path / "absent.tar") == f"{where} Actual: No such file or directory. {step}"


def test_a_link_that_leads_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    (folder / "out.txt").unlink()
    (folder / "out.txt").symlink_to(tmp_path / "secret")
    assert (
        refused(folder)
        == f"outputs[0].file: out.txt - Expected: a file beside the manifest Actual: it is outside the folder. {AGAIN}"
    )


def test_a_link_to_itself_and_a_pipe_are_refused_at_once(folder: Path) -> None:
    (folder / "out.txt").unlink()
    (folder / "out.txt").symlink_to("out.txt")
    assert (
        refused(folder) == "outputs[0].file: out.txt - Expected: a file beside the manifest "
        f"Actual: Too many levels of symbolic links. {AGAIN}"
    )
    for name in ("out.txt", "manifest.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert "Actual: not a regular file. " in refused(folder)
    os.mkfifo(folder.parent / "pipe.tar")
    assert "Actual: not a regular file. " in refused(folder.parent / "pipe.tar")


def test_a_file_that_is_larger_than_any_output_is_refused(folder: Path) -> None:
    with (folder / "out.txt").open("wb") as file:
        file.truncate(OUTPUT_LIMIT + 1)
    assert (
        refused(folder)
        == f"outputs[0].file: out.txt - Expected: a file beside the manifest Actual: larger than 32 MiB. {AGAIN}"
    )
    assert (
        refused(packed(folder))
        == f"outputs[0].file: out.txt - Expected: a file beside the manifest Actual: larger than 32 MiB. {AGAIN}"
    )


def test_files_are_held_against_the_check_sums_of_the_manifest(folder: Path) -> None:
    good = hashlib.sha256(b"said").hexdigest()

    def written(**files: str) -> Path:
        (folder / "manifest.json").write_text(
            json.dumps(manifest() | {"files": {name.replace("_", "."): digest for name, digest in files.items()}})
        )
        return folder

    assert read(written(out_txt=good)).files == {"out.txt": "said"}
    (folder / "out.txt").write_text("sa1d", encoding="utf-8")
    found = hashlib.sha256(b"sa1d").hexdigest()
    said = (
        f"outputs[0].file: out.txt - Expected: SHA-256 {good} Actual: {found}. "
        f"It was damaged or changed in transit. {AGAIN}"
    )
    assert refused(written(out_txt=good)) == said
    missing = (
        f"outputs[0].file: out.txt - Expected: its SHA-256 under files, like those of others Actual: none. {CORRECT}"
    )
    assert (
        refused(written(b_txt=good))
        == f"{missing}\nfiles: b.txt - Expected: a file that an output names Actual: none names it. {CORRECT}"
    )
    assert refused(written(out_txt="abc")).startswith("manifest.json: files.out.txt - Expected: ")


# archives ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_is_read_whole_or_not_at_all(folder: Path, mode: Packing) -> None:
    """Every byte counts, also the packer's checksums; a plain tar has none, but the manifest has its files'."""
    (folder / "manifest.json").write_text(
        json.dumps(manifest() | {"files": {"out.txt": hashlib.sha256(b"said").hexdigest()}}), encoding="utf-8"
    )
    archive = packed(folder, mode)
    whole = archive.read_bytes()
    assert read(archive).files == {"out.txt": "said"}
    steps = (
        (1, 4, 8, 12, len(whole) // 2, len(whole) - 20) if mode != "w" else (len(whole) - 512, len(whole) // 2, 9000)
    )
    for cut in steps:
        archive.write_bytes(whole[:-cut])
        assert "Expected: " in refused(archive), f"without its last {cut} bytes"


def test_what_is_wrong_with_an_archive_is_said(folder: Path) -> None:
    archive = packed(folder)
    whole = archive.read_bytes()
    step = "Name the archive that collect.py packed, or capture again."
    archive.write_bytes(whole[:-12])
    said = refused(archive)
    expected = "manifest.json - Expected: a folder, manifest or tar archive that has it"
    assert said == f"{expected} {CUT} (Compressed file ended before the end-of-stream marker was reached). {step}"
    archive.write_bytes(whole[:-8] + b"1234" + whole[-4:])
    assert re.fullmatch(
        rf"{re.escape(f'{expected} {CUT}')} \(CRC check failed 0x34333231 != 0x[0-9a-f]+\)\. {step}", refused(archive)
    )
    archive.write_text("no archive", encoding="utf-8")
    assert CUT in refused(archive)


def test_a_tar_that_has_no_end_or_goes_on_behind_it_is_refused(folder: Path) -> None:
    archive = packed(folder, "w")
    whole = archive.read_bytes()
    end = len(whole.rstrip(b"\0")) // 512 * 512 + 512
    archive.write_bytes(whole[:end])
    assert "Actual: cut off: it has no end. " in refused(archive)
    archive.write_bytes(whole + whole)
    assert (
        f"Actual: damaged, or more than one archive: there are data after byte {end}, where its last file ends. "
        in refused(archive)
    )
    archive.write_bytes(whole[:1024] + b"x" + whole[1025:])
    assert "Actual: " in refused(archive)


def test_two_captures_in_one_archive_are_refused_by_name(folder: Path) -> None:
    archive = folder.parent / "two.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname="a")
        tar.add(folder, arcname="b")
    assert (
        refused(archive) == "manifest.json - Expected: one capture Actual: a/manifest.json, b/manifest.json. "
        "Import each of them by itself."
    )
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname="a")
        tar.add(folder, arcname="./a")
    assert re.search(r"Actual: a/(manifest\.json|out\.txt) is in the archive twice\. ", refused(archive))


@pytest.mark.parametrize("packing", ["w:gz", "w:xz"])
def test_an_archive_that_unpacks_without_end_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, packing: Packing
) -> None:
    monkeypatch.setattr(captured_archive, "_MOST", 1 << 20)
    archive = folder.parent / "captured.tar"
    with tarfile.open(archive, packing) as tar:
        large = tarfile.TarInfo("large")
        large.size = 2 << 20
        tar.addfile(large, io.BytesIO(bytes(2 << 20)))
    assert "Actual: larger than 1 MiB when unpacked. " in refused(archive)


def test_an_archive_without_a_manifest_is_refused(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    assert "Actual: none in the archive. " in refused(packed(folder))


def test_other_files_in_an_archive_are_left_alone(folder: Path) -> None:
    archive = folder.parent / "more.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, arcname="captured")
        tar.addfile(tarfile.TarInfo("captured/more.txt"), io.BytesIO())
    assert read(archive).files == {"out.txt": "said"}
