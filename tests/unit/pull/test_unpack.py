"""Unpacking of releases: nothing outside its folder, nothing but regular files."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from rackready.ondevice.pull.problem import PullProblem
from rackready.ondevice.pull.unpack import unpack
from tests.unit.pull.world import tar

STEP = "Run the phase again on the controller: it writes the release again."


def wheel(files: dict[str, bytes], *, mode: int = 0o100644) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    return out.getvalue()


def unpacked(tmp: Path, code: bytes, *wheels: bytes) -> Path:
    (tmp / "code").write_bytes(code)
    paths = []
    for number, data in enumerate(wheels):
        paths.append(tmp / f"{number}.whl")
        paths[-1].write_bytes(data)
    (tmp / "releases").mkdir()
    unpack("node01", tmp / "code", paths, tmp / "releases" / ("a" * 64))
    return tmp / "releases" / ("a" * 64)


def test_code_and_wheels_are_where_stage_2_looks(tmp_path: Path) -> None:
    files = {
        "a/__init__.py": b"1",
        "a-1.data/purelib/b.py": b"2",
        "a-1.data/scripts/run": b"3",
        "a-1.data/data/x": b"4",
    }
    folder = unpacked(tmp_path, tar({"src/rackready/x.py": b"5"}), wheel(files))
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == ["bin/ansible-playbook", "code/src/rackready/x.py", "wheels/a/__init__.py", "wheels/b.py"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a\\x"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    said = (
        f"node01: release aaaaaaaaaaaa - Expected: regular files below its folder Actual: {name!r}, which lies outside "
        f"of it. {STEP}"
    )
    with pytest.raises(PullProblem) as caught:
        unpacked(tmp_path, tar({name: b"x"}))
    assert str(caught.value) == said
    (tmp_path / "w").mkdir()
    with pytest.raises(PullProblem) as caught:
        unpacked(tmp_path / "w", tar({}), wheel({name: b"x"}))
    assert str(caught.value) == said
    assert list((tmp_path / "releases").iterdir()) == []


def test_links_are_refused(tmp_path: Path) -> None:
    words = r"Expected: regular files below its folder Actual: a/link, which is no regular file\."
    with pytest.raises(PullProblem, match=words):
        unpacked(tmp_path, tar({}, ("a/link", "/etc/passwd")))
    (tmp_path / "w").mkdir()
    with pytest.raises(PullProblem, match=words):
        unpacked(tmp_path / "w", tar({}), wheel({"a/link": b"/etc/passwd"}, mode=0o120777))


@pytest.mark.parametrize("code", [b"", b"junk", tar({"a": b"x" * 9000})[:60]], ids=["empty", "junk", "cut"])
def test_a_damaged_archive_is_refused(tmp_path: Path, code: bytes) -> None:
    with pytest.raises(PullProblem, match="a damaged archive of code"):
        unpacked(tmp_path, code)


def test_a_damaged_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PullProblem, match="a damaged wheel"):
        unpacked(tmp_path, tar({}), b"junk")


def test_a_file_that_two_wheels_have_is_the_later_ones(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, tar({}), wheel({"LICENSE": b"of the first"}), wheel({"LICENSE": b"second"}))
    assert (folder / "wheels/LICENSE").read_bytes() == b"second"
