"""The program for the Slurm controller as it is sent: one text on standard input, for a Python without rackready."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.drivers.remote import Answer
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_files import SlurmController

NODES = 3000
FILE = "".join(
    f"NodeName=gpu{at:04d} NodeAddr=10.0.{at // 250}.{at % 250} Sockets=2 CoresPerSocket=56\n" for at in range(NODES)
)


class Machine:
    """Runs commands here, as a machine without rackready would."""

    def __init__(self) -> None:
        self.argv: Sequence[str] = ()

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float, **_: object) -> Answer:
        del node
        self.argv = argv
        words = [sys.executable, "-I", "-S", *argv[1:]]
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
        return Answer(done.returncode, done.stdout, done.stderr, 0.1)


def test_a_request_of_thousands_of_nodes_is_neither_cut_nor_shown(tmp_path: Path) -> None:
    assert len(FILE) > 128 * 1024, "longer than one argument may be"
    (tmp_path / "slurm.conf").write_text("Include rackready_nodes.conf\n", encoding="utf-8")
    machine = Machine()
    controller = SlurmController(machine, "ctl", str(tmp_path), "slurmctld.service")
    with pytest.raises(SchedulerError) as caught:
        controller.change({"rackready_nodes.conf": FILE, "slurm.conf": "# caf\xe9 'x' \\\n"}, "old", "restart", [])
    assert str(caught.value) == (
        f"ctl: {tmp_path} - Expected: files as they were read Actual: the files are no longer as they were read. Run "
        "again: it reads them again."
    )
    assert list(machine.argv) == ["python3", "-"]
