"""Slurm's files on their controller when its disk refuses them, and the end of a change: slurmctld never stays down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.ondevice import slurm_copy, slurm_files
from tests.unit.ondevice.test_slurm_files import NEW, OLD, Ask, Daemon, asking, daemon

__all__ = ["asking", "daemon"]
"""Fixtures."""
NO_SPACE = OSError(28, "No space left on device")
STOP, RESTART = "systemctl stop slurmctld.service", "systemctl restart slurmctld.service"
Fails = Callable[..., None]


def failing(*times: int) -> Fails:
    """Return a writer of files that fails at some of its calls, counted from 1."""
    calls: list[int] = []

    def write(folder: Path, found: dict[str, str | None]) -> None:
        calls.append(1)
        if len(calls) in times:
            raise NO_SPACE
        slurm_copy.write(folder, found)

    return write


def test_a_file_that_cannot_be_replaced_is_refused_while_slurmctld_runs(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    (tmp_path / "slurm.conf").rename(tmp_path / "elsewhere")
    (tmp_path / "slurm.conf").symlink_to("elsewhere")
    found = asking(op="begin", hosts=["n1"])
    assert (found["result"], found["words"]) == (
        "os-error",
        [
            (
                "[Errno 40] is a link, which rackready would replace by a file; put the file itself here: "
                f"'{tmp_path}/slurm.conf'"
            )
        ],
    )
    assert daemon.calls == []
    assert not (tmp_path / slurm_files.JOURNAL).exists()


def test_a_disk_that_fails_after_slurmctld_stopped_starts_it_with_the_old_files(
    tmp_path: Path, daemon: Daemon, asking: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_files, "write", failing(1))
    found = asking(op="begin", hosts=["n1"])
    assert (found["result"], found["words"]) == (
        "os-error", ["[Errno 28] No space left on device", "with the old files slurmctld runs again"],
    )  # fmt: skip
    assert [call for call in daemon.calls if call in {STOP, RESTART}] == [STOP, RESTART]
    assert daemon.loaded == slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    assert not (tmp_path / slurm_files.JOURNAL).exists()


def test_old_files_that_cannot_be_written_do_not_keep_slurmctld_down(
    tmp_path: Path, daemon: Daemon, asking: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking(op="begin", hosts=["n1"])
    daemon.up = False
    monkeypatch.setattr(slurm_files, "write", failing(1))
    found = asking(op="back")
    assert (found["result"], found["words"]) == (
        "os-error",
        [
            "[Errno 28] No space left on device",
            "with the files as they are slurmctld runs again",
            f"the change is still open in {tmp_path / slurm_files.JOURNAL}",
        ],
    )
    assert daemon.up
    assert json.loads((tmp_path / slurm_files.JOURNAL).read_text())["new"] == NEW


def test_the_end_of_a_change_restarts_a_slurmctld_that_must_be_restarted(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    asking(op="begin", hosts=["n1"])
    daemon.nodes = {"n1"}  # somebody started slurmctld by hand
    assert asking(op="recover")["words"] == ["an interrupted change continues"]
    daemon.calls.clear()
    assert asking(op="close")["result"] == "closed"
    assert daemon.calls[1:3] == [RESTART, "scontrol ping"]
    assert daemon.loaded == NEW
    assert not (tmp_path / slurm_files.JOURNAL).exists()


def test_a_change_whose_files_slurmctld_does_not_take_stays_open(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    asking(op="begin", hosts=["n1"], reload="reconfigure", nodes=["n1", "n2"])
    daemon.dies_of = "NodeName=n1"
    found = asking(op="close")
    assert (found["result"], found["words"]) == (
        "not-closed",
        [
            "scontrol reconfigure: slurm_reconfigure error: Unable to contact slurm controller",
            "error: x",
            "fatal: Duplicated NodeHostName n1 in config file",
        ],
    )
    daemon.dies_of = ""
    assert asking(op="close")["words"] == ["slurmctld does not know n2"]
    assert (tmp_path / slurm_files.JOURNAL).exists()


def test_a_slurmctld_that_is_down_with_the_old_files_is_started_by_the_end_of_the_change(
    tmp_path: Path, daemon: Daemon, asking: Ask
) -> None:
    asking(op="begin", hosts=["n1"])
    daemon.dies_of = "ClusterName"
    found = asking(op="back")
    assert found["words"] == ["with the old files slurmctld does not answer: "]
    assert asking(op="close")["result"] == "not-closed"
    daemon.dies_of = ""
    assert asking(op="close")["result"] == "closed"
    assert daemon.loaded == slurm_files.texts(tmp_path) == {"slurm.conf": OLD}
    assert RESTART in daemon.calls[-5:]


def test_a_run_whose_change_another_run_took_over_goes_no_further(tmp_path: Path, daemon: Daemon, asking: Ask) -> None:
    first = asking(op="begin", hosts=["n1"])["change"]
    daemon.up = False
    second = asking(op="recover")["change"]
    assert first != second
    daemon.calls.clear()
    for op in ("finish", "back", "close"):
        found = asking(op=op, change=first, reload="restart", nodes=[])
        assert (found["result"], found["words"]) == ("taken-over", ["the open change is another run's"])
    assert daemon.calls == []
    assert asking(op="close", change=second)["result"] == "closed"
    for op in ("finish", "back", "close"):
        found = asking(op=op, change=first, reload="restart", nodes=[])
        assert (found["result"], found["words"]) == ("taken-over", ["no change is open: another run ended it"])
    assert slurm_files.texts(tmp_path) == {"slurm.conf": OLD}


def test_a_full_disk_does_not_keep_a_recovery_from_starting_slurmctld(
    daemon: Daemon, asking: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asking(op="begin", hosts=["n1"])["change"]
    daemon.up = False

    def full(*_: object) -> None:
        raise NO_SPACE

    monkeypatch.setattr(slurm_files, "replace", full)
    monkeypatch.setattr(slurm_files, "write", failing(1))
    assert asking(op="recover")["words"][:2] == [
        "[Errno 28] No space left on device",
        "with the files as they are slurmctld runs again",
    ]
    assert daemon.up
    assert asking(op="recover")["change"] == first
