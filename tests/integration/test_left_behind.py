"""What a killed run leaves is removed by the next one, and what a live run has is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import left_behind, worker_nets
from tests.unit.campaign.worker_lab import ROOT
from tests.waiting import until

pytestmark = pytest.mark.integration

PREFIX = "rr-0c1ea0"
KILLED = """
import subprocess, sys, time
from pathlib import Path
from tests.integration.left_behind import Note
from tests.integration.worker_nets import Nets

folder = Path(sys.argv[1])
note, nets = Note("{prefix}", folder / "notes"), Nets("{prefix}")
nets.begin(("w1",))
(folder / "server").mkdir()
note.add(folder / "server")
child = subprocess.Popen([*nets.inside("w1"), "sleep", "600"])
time.sleep(0.5)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_run_is_cleaned_by_the_next_one(tmp_path: Path) -> None:
    program = [sys.executable, "-c", KILLED.format(prefix=PREFIX), str(tmp_path)]
    try:
        with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            inside = int(run.stdout.readline())
            assert left_behind.sweep(tmp_path / "notes") == [], "it is alive"
            run.kill()
        assert not worker_nets.is_dead(inside), "nobody ended it yet"
        removed = left_behind.sweep(tmp_path / "notes")
        until(lambda: worker_nets.is_dead(inside))
        assert {f"{PREFIX}-db", f"{PREFIX}-w1", f"{PREFIX}-x", str(tmp_path / "server")} <= set(removed)
        assert not [name for name in (*worker_nets.spaces(), *worker_nets.links()) if name.startswith(PREFIX)]
        assert not (tmp_path / "server").exists()
        assert left_behind.sweep(tmp_path / "notes") == []
    finally:
        worker_nets.remove(PREFIX)
