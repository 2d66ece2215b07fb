"""Disk and seed of a virtual machine: made once, never written over, and what is said where they cannot be made."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import virtual_disk

TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> "{log}"
for last; do :; done
case "$(basename "$0")" in
  qemu-img) touch "$9" ;;
  *) out=""; while [ $# -gt 0 ]; do [ "$1" = -o ] && out="$2"; shift; done; ls "$last" > "$out" ;;
esac
"""
FILES = {"meta-data": "m\n", "user-data": "#cloud-config\n"}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with programs that record their command lines."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("qemu-img", "xorriso"):
        put(folder, name)
    for name in ("sh", "basename", "touch", "ls"):
        (folder / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(folder: Path, name: str, text: str = TOOL) -> None:
    path = folder / name
    path.write_text(text.replace("{log}", str(folder / "log")), encoding="utf-8")
    path.chmod(0o755)


def said(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def asked(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    (tmp_path / "base.qcow2").touch()
    names = {"disk": "g.qcow2", "base": "base.qcow2", "seed": "g.iso"}
    paths = {key: str(tmp_path / name) for key, name in names.items()}
    return {**paths, "size_gib": 64, "files": FILES, **changes}


def test_disk_and_seed_are_made_once(tools: Path, tmp_path: Path) -> None:
    request = asked(tmp_path)
    assert virtual_disk.work(request) == {"disk": True, "seed": True}
    disk, seed, base = request["disk"], request["seed"], request["base"]
    first, second = said(tools)
    assert first == f"qemu-img create -q -f qcow2 -b {base} -F qcow2 {disk}.part 64G"
    assert second.startswith(f"xorriso -as mkisofs -quiet -volid cidata -joliet -rock -o {seed}.part {tmp_path}/.seed-")
    assert Path(seed).read_text(encoding="utf-8").split() == sorted(FILES)
    assert virtual_disk.work(request) == {"disk": False, "seed": False}
    assert len(said(tools)) == 2, "what is there is left alone"


def test_a_disk_with_data_is_never_written_over(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "g.qcow2").write_text("data of a user", encoding="utf-8")
    assert virtual_disk.make_disk(tmp_path / "g.qcow2", tmp_path / "absent", 8) is False
    assert (tmp_path / "g.qcow2").read_text(encoding="utf-8") == "data of a user"
    assert said(tools) == []


def test_other_files_make_another_seed_and_leave_the_disk(tools: Path, tmp_path: Path) -> None:
    virtual_disk.work(asked(tmp_path))
    again = asked(tmp_path, files={**FILES, "network-config": "n\n"})
    assert virtual_disk.work(again) == {"disk": False, "seed": True}
    assert "network-config" in (tmp_path / "g.iso").read_text(encoding="utf-8")
    assert said(tools)[-1].startswith("xorriso ")


def test_a_seed_whose_mark_is_lost_is_made_again(tools: Path, tmp_path: Path) -> None:
    virtual_disk.work(asked(tmp_path))
    (tmp_path / "g.iso.sha256").unlink()
    assert virtual_disk.work(asked(tmp_path)) == {"disk": False, "seed": True}
    assert len(said(tools)) == 3


def test_a_part_that_a_killed_run_left_is_no_disk(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "g.qcow2.part").write_text("half", encoding="utf-8")
    assert virtual_disk.work(asked(tmp_path))["disk"] is True
    assert not (tmp_path / "g.qcow2.part").exists()
    assert (tmp_path / "g.qcow2").read_text(encoding="utf-8") == ""
    assert len(said(tools)) == 2


def test_genisoimage_serves_where_xorriso_is_absent(tools: Path, tmp_path: Path) -> None:
    (tools / "xorriso").unlink()
    put(tools, "genisoimage")
    virtual_disk.work(asked(tmp_path))
    assert said(tools)[-1].startswith("genisoimage -quiet -volid cidata ")


def test_only_the_owner_reads_what_is_made(tools: Path, tmp_path: Path) -> None:
    """As the program that it is on the hypervisor: its umask must not change that of the tests."""
    request = asked(tmp_path)
    done = subprocess.run(
        [sys.executable, virtual_disk.__file__, json.dumps(request)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"disk": True, "seed": True}
    assert {stat.S_IMODE(Path(request[key]).stat().st_mode) for key in ("disk", "seed")} == {0o600}
    assert len(said(tools)) == 2


def test_a_seed_is_removed_with_its_mark_and_the_disk_stays(tools: Path, tmp_path: Path) -> None:
    virtual_disk.work(asked(tmp_path))
    seed = tmp_path / "g.iso"
    for _ in range(2):  # also where nothing is left
        assert virtual_disk.work({"remove": str(seed)}) == {"removed": str(seed)}
    left = sorted(path.name for path in tmp_path.iterdir() if path != tools)
    assert left == ["base.qcow2", "g.qcow2"]


def failing(tools: Path, tmp_path: Path) -> str:
    put(tools, "qemu-img", "#!/bin/sh\necho first >&2; echo 'no space left' >&2; exit 1\n")
    command = f"qemu-img create -q -f qcow2 -b {tmp_path}/base.qcow2 -F qcow2 {tmp_path}/g.qcow2.part 64G"
    return f"`{command}`: no space left"


def no_base(tools: Path, tmp_path: Path) -> str:
    del tools
    (tmp_path / "base.qcow2").unlink()
    return f"no base image {tmp_path}/base.qcow2"


def no_tool(tools: Path, tmp_path: Path) -> str:
    del tmp_path
    (tools / "xorriso").unlink()
    return "no xorriso and no genisoimage on the hypervisor"


@pytest.mark.parametrize("break_", [failing, no_base, no_tool])
def test_what_is_missing_is_said_and_no_disk_is_left_half_made(
    break_: Callable[[Path, Path], str],
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = asked(tmp_path)
    text = break_(tools, tmp_path)
    monkeypatch.setattr(sys, "argv", ["-", json.dumps(request)])
    assert virtual_disk.main() == 1
    assert capsys.readouterr().err == f"{text}\n"
    assert not Path(request["seed"]).exists()
    assert Path(request["disk"]).exists() is (break_ is no_tool)


def test_a_program_that_fails_in_silence_is_named(tools: Path) -> None:
    put(tools, "qemu-img", "#!/bin/sh\nexit 1\n")
    with pytest.raises(virtual_disk.DiskError, match=r"^`qemu-img info`: no output$"):
        virtual_disk.run(["qemu-img", "info"])
