"""The folder of Slurm's files is copied for a trial with the owner and mode of everything in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackready.ondevice import slurm_copy


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "etc"
    (made / "certs/deep").mkdir(parents=True)
    (made / "slurm.conf").write_text("ClusterName=x\n")
    (made / "slurm.key").write_text("k")
    (made / "certs/deep/ca.pem").write_text("c")
    (made / "gone").symlink_to(tmp_path / "nothing")
    (made / "rackready.kept/1").mkdir(parents=True)
    (made / "slurm.key").chmod(0o600)
    (made / "certs").chmod(0o750)
    return made


def test_each_file_and_folder_gets_the_owner_of_its_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, tuple[int, int]] = {}

    def chown(path: Path, uid: int, gid: int) -> None:
        given[str(path.relative_to(tmp_path / "copy"))] = (uid, gid)

    monkeypatch.setattr(slurm_copy.os, "chown", chown)
    slurm_copy.copy_folder(folder(tmp_path), tmp_path / "copy", "rackready.kept")
    names = {".", "certs", "certs/deep", "certs/deep/ca.pem", "slurm.conf", "slurm.key"}
    assert given == dict.fromkeys(names, (os.getuid(), os.getgid()))
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert found == names - {"."}
    assert oct((tmp_path / "copy/slurm.key").stat().st_mode & 0o7777) == "0o600"
    assert oct((tmp_path / "copy/certs").stat().st_mode & 0o7777) == "0o750"


@pytest.mark.skipif(os.getuid() != 0, reason="gives files away")
def test_a_key_stays_slurms(tmp_path: Path) -> None:
    made = folder(tmp_path)
    for name in ("slurm.key", "certs", "."):
        os.chown(made / name, 64030, 64031)
    slurm_copy.copy_folder(made, tmp_path / "copy", "rackready.kept")
    for name, owner in {"slurm.key": 64030, "certs": 64030, ".": 64030, "slurm.conf": 0}.items():
        assert (tmp_path / "copy" / name).stat().st_uid == owner
    assert (tmp_path / "copy/slurm.key").stat().st_gid == 64031


def test_a_file_that_cannot_be_replaced_is_found_before_any_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("slurm.conf", "gres.conf"):
        (tmp_path / name).write_text("old\n")
    new: dict[str, str | None] = {"gres.conf": "new\n", "x.conf": "new\n", "slurm.conf": "new\n"}
    (tmp_path / "table").write_text(
        f"36 35 98:0 / / rw shared:1 - ext4 /dev/sda1 rw\n40 36 98:0 /s {tmp_path}/slurm.conf rw - ext4 /dev/sda1 rw\n"
    )
    found = slurm_copy.mounts(tmp_path / "table")
    assert found == {"/": "ext4", f"{tmp_path}/slurm.conf": "ext4"}
    with monkeypatch.context() as context:
        context.setattr(slurm_copy, "mounts", lambda: found)
        with pytest.raises(OSError, match=r"is a mount of one file, which cannot be replaced: '.*/slurm.conf'"):
            slurm_copy.write(tmp_path, new)
        (tmp_path / "folder").symlink_to(tmp_path)
        with pytest.raises(OSError, match="is a mount of one file"):
            slurm_copy.write(tmp_path / "folder", new)
        (tmp_path / "folder").unlink()
    (tmp_path / "slurm.conf").rename(tmp_path / "real")
    (tmp_path / "slurm.conf").symlink_to("real")
    with pytest.raises(OSError, match="is a link, which rackready would replace by a file"):
        slurm_copy.write(tmp_path, new)
    (tmp_path / "slurm.conf").unlink()

    chmod = Path.chmod

    def immutable(path: Path, mode: int) -> None:
        if path.name == "gres.conf":
            raise PermissionError(1, "Operation not permitted", str(path))
        chmod(path, mode)

    with monkeypatch.context() as context:
        context.setattr(Path, "chmod", immutable)
        with pytest.raises(PermissionError, match="gres"):
            slurm_copy.write(tmp_path, {"x.conf": "new\n", "gres.conf": None})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gres.conf", "real", "table"]
    assert (tmp_path / "gres.conf").read_text() == "old\n"


def test_a_blank_in_a_mount_point_is_read(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("36 35 0:31 / /mnt/a\\040b rw master:1 - nfs4 srv:/x rw\n")
    assert slurm_copy.mounts(tmp_path / "table") == {"/mnt/a b": "nfs4"}
    assert slurm_copy.mounts(tmp_path / "gone") == {}
