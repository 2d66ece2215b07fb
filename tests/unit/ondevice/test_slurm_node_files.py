"""The program that writes Slurm's files on a node, against a slurmd that the tests make behave."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import slurm_node_files as program

Ask = Callable[..., dict[str, Any]]


class Slurmd:
    """A unit that runs, or not, and restarts unless it refuses its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.up = True
        self.refuses = ""
        self.restarts = 0

    def run(self, *argv: str) -> tuple[int, str]:
        if argv[:2] == ("systemctl", "is-active"):
            return 0, "active" if self.up else "inactive"
        if argv[:2] == ("systemctl", "show"):
            return 0, "process"
        if argv[:2] == ("systemctl", "restart"):
            self.restarts += 1
            self.up = not self.refuses or self.refuses not in (self.folder / "slurm.conf").read_text()
            return 0, ""
        assert argv[0] == "journalctl"
        return 0, "slurmd: error: _parse_next_key: Parsing error at unrecognized key: Bad\nslurmd: fatal: Unable"


@pytest.fixture
def slurmd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurmd:
    made = Slurmd(tmp_path / "slurm")
    monkeypatch.setattr(program, "run", made.run)
    monkeypatch.setattr(program.time, "sleep", lambda _: None)
    return made


@pytest.fixture
def ask(slurmd: Slurmd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(op: str, **more: Any) -> dict[str, Any]:
        request = {"op": op, "folder": str(slurmd.folder), "unit": "slurmd.service", "instead": {}}
        request |= {"anything": False, "restart": True}
        monkeypatch.setattr(sys, "argv", ["program", json.dumps(request | more)])
        assert program.main() == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (found.pop("complete"), found.pop("format")) == (True, program.FORMAT)
        return found

    return asked


def sha(text: str) -> str:
    return hashlib.sha256(text.encode("latin-1")).hexdigest()


def test_a_node_without_files_gets_them_and_starts_no_slurmd(
    slurmd: Slurmd, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "filesystem", lambda _: "ext4")
    slurmd.up = False
    assert ask("look") == {
        "result": "looked",
        "words": [],
        "files": {},
        "ours": [],
        "links": [],
        "filesystem": "ext4",
        "active": False,
        "kill_mode": "process",
    }
    found = ask("write", files={"slurm.conf": "# caf\xe9\n", "gres.conf": "b\n"})
    assert found == {"result": "written", "words": ["slurm.conf", "gres.conf"]}
    assert (slurmd.folder / "slurm.conf").read_bytes() == b"# caf\xe9\n"
    assert (slurmd.folder / "slurm.conf").stat().st_mode & 0o777 == 0o644
    assert ask("look")["files"] == {"gres.conf": sha("b\n"), "slurm.conf": sha("# caf\xe9\n")}
    assert slurmd.restarts == 0


def test_a_running_slurmd_restarts_and_the_old_files_are_kept(slurmd: Slurmd, ask: Ask) -> None:
    slurmd.folder.mkdir()
    (slurmd.folder / "slurm.conf").write_text("old\n")
    (slurmd.folder / "slurm.conf").chmod(0o640)
    asked = {"files": {"slurm.conf": "new\n"}, "instead": {"slurm.conf": sha("old\n")}}
    assert ask("write", **asked) == {"result": "written", "words": ["slurm.conf"]}
    assert slurmd.restarts == 1
    assert (slurmd.folder / "slurm.conf").stat().st_mode & 0o777 == 0o640
    kept = list((slurmd.folder / "rackready.kept").glob("*/slurm.conf"))
    assert [path.read_text() for path in kept] == ["old\n"]
    # Repeated after a kill: the files are there, and slurmd may not have read them.
    assert ask("write", **asked) == {"result": "unchanged", "words": []}
    assert slurmd.restarts == 2
    # Before a reconfigure slurmd keeps running: it reads the files then.
    assert ask("write", files={"slurm.conf": "newer\n"}, restart=False)["result"] == "written"
    assert slurmd.restarts == 2


def test_what_somebody_else_wrote_stays(slurmd: Slurmd, ask: Ask) -> None:
    slurmd.folder.mkdir()
    (slurmd.folder / "slurm.conf").write_text("by hand\n")
    asked = {"files": {"slurm.conf": "new\n", "x.conf": "x\n"}, "instead": {"slurm.conf": sha("old\n")}}
    assert ask("write", **asked) == {"result": "differs", "words": ["slurm.conf"]}
    assert (slurmd.folder / "slurm.conf").read_text() == "by hand\n"
    assert not (slurmd.folder / "x.conf").exists()
    assert slurmd.restarts == 0
    assert ask("write", **asked, anything=True)["result"] == "written"
    assert [path.read_text() for path in slurmd.folder.glob("rackready.kept/*/slurm.conf")] == ["by hand\n"]


def test_a_file_of_ours_is_replaced_however_old_it_is(slurmd: Slurmd, ask: Ask) -> None:
    ask("write", files={"slurm.conf": "first\n", "gres.conf": "g\n"})
    (slurmd.folder / "gres.conf").write_text("by hand\n")
    assert ask("look")["ours"] == ["slurm.conf"]
    assert ask("write", files={"gres.conf": "h\n"}) == {"result": "differs", "words": ["gres.conf"]}
    assert ask("write", files={"slurm.conf": "third\n"}) == {"result": "written", "words": ["slurm.conf"]}
    (slurmd.folder / program.WRITTEN).write_text("{")
    assert ask("look")["ours"] == []


def test_a_file_that_was_not_there_goes_again(slurmd: Slurmd, ask: Ask) -> None:
    ask("write", files={"slurm.conf": "a\n", "x.conf": "x\n"})
    found = ask("write", files={"slurm.conf": "a\n", "x.conf": None}, instead={"x.conf": sha("x\n")})
    assert found == {"result": "written", "words": ["x.conf"]}
    assert sorted(path.name for path in slurmd.folder.glob("*.conf")) == ["slurm.conf"]


def test_a_slurmd_that_does_not_start_says_why(slurmd: Slurmd, ask: Ask) -> None:
    slurmd.refuses = "Bad"
    assert ask("write", files={"slurm.conf": "Bad=1\n"}) == {
        "result": "not-restarted",
        "words": ["slurmd: error: _parse_next_key: Parsing error at unrecognized key: Bad", "slurmd: fatal: Unable"],
    }


def test_a_folder_that_cannot_be_written_is_said(slurmd: Slurmd, ask: Ask) -> None:
    slurmd.folder.write_text("a file")
    found = ask("write", files={"slurm.conf": "a\n"})
    assert (found["result"], found["words"]) == (
        "os-error", [f"[Errno 17] File exists: '{slurmd.folder}'"],
    )  # fmt: skip


def test_links_are_named_and_never_replaced(slurmd: Slurmd, ask: Ask) -> None:
    slurmd.folder.mkdir()
    (slurmd.folder / "real").write_text("a\n")
    (slurmd.folder / "slurm.conf").symlink_to("real")
    (slurmd.folder / "gres.conf").symlink_to("nothing")
    found = ask("look")
    assert (found["links"], sorted(found["files"])) == (["gres.conf", "slurm.conf"], ["slurm.conf"])
    found = ask("write", files={"a.conf": "a\n", "slurm.conf": "b\n"}, anything=True)
    assert (found["result"], found["words"]) == (
        "os-error", [f"[Errno 40] is a link, which would be replaced by a file: '{slurmd.folder}/slurm.conf'"],
    )  # fmt: skip
    assert not (slurmd.folder / "a.conf").exists()
    assert (slurmd.folder / "real").read_text() == "a\n"


def test_the_file_system_of_a_folder_is_that_of_its_last_mount(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    lines = [
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        f"30 22 0:40 / {base}/etc rw master:2 - autofs systemd-1 rw",
        f"31 22 0:41 / {base}/etc rw - nfs4 server:/etc rw,addr=192.0.2.1",
        f"32 22 0:42 / {base}/etc2 rw - tmpfs tmpfs rw",
        f"33 22 0:43 / {base}/a\\040b rw - lustre 192.0.2.2@o2ib:/x rw",
    ]
    (tmp_path / "table").write_text("\n".join(lines) + "\n")
    found = {name: program.filesystem(base / name, tmp_path / "table") for name in ("etc/slurm", "etc2", "a b", "x")}
    assert found == {"etc/slurm": "nfs4", "etc2": "tmpfs", "a b": "lustre", "x": "ext4"}
    assert program.filesystem(base, tmp_path / "gone") == ""
    assert program.filesystem(base), "this machine has a table"
