"""Rounds with workers, played without a rack: on programs whose phase does what must not be done twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from rackready.paths import EnvPaths
from tests.integration.project import Project
from tests.integration.worker_chaos import DELAYS_S, PHASES, Blow, WorkerRound, draw, problems
from tests.postgres import programs
from tests.unit.campaign.worker_lab import PROGRAM, write_site


class Programs:
    """In the place of a project with a rack."""

    env = "lab"

    def __init__(self, root: Path) -> None:
        self.root, self.paths = root, EnvPaths(root, "lab")
        write_site(root)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a worker, or a controller as the deploy."""
        part = ["worker", arguments[2]] if arguments[0] == "worker" else ["controller"]
        with (self.root / "progress.log").open("a", encoding="utf-8") as log:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.root), *part],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if part[0] == "worker" else subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"MODE": "slow"},
            )

    def progress(self) -> str:
        return (self.root / "progress.log").read_text(encoding="utf-8")


def test_points_follow_from_the_seed_and_hit_workers_and_the_database() -> None:
    assert draw(7) == draw(7) != draw(8)
    for seed in range(20):
        blows = draw(seed)
        assert [blow.phase for blow in blows] == sorted([blow.phase for blow in blows], key=PHASES.index)
        assert {"worker", "machine", "database"} == {blow.at for blow in blows}
        assert all(0 <= blow.delay_s <= DELAYS_S[blow.phase] for blow in blows)


@pytest.mark.skipif(programs() is None, reason="no PostgreSQL server is installed")
def test_a_round_ends_right_with_nothing_done_twice(tmp_path: Path) -> None:
    said: list[str] = []
    project = Programs(tmp_path)
    made = WorkerRound(cast("Project", project), 3, said.append, 1)
    blows = [Blow("install", 0.5, "worker"), Blow("install", 0.5, "machine"), Blow("install", 0.5, "database")]
    try:
        struck = made.play(blows)
        made.stop_workers()
        assert (struck.code, struck.missed) == (0, []), (said, project.progress()[-3000:])
        assert struck.landed == blows
        done = (tmp_path / "world.log").read_text(encoding="utf-8").split()
        assert sorted(done) == ["node01", "node02", "node03", "node04"]
        left: list[Any] = [text for text in problems(made) if not text.startswith("only ")]
        assert left == ["no evidence is on record"], "this phase measures nothing"
    finally:
        made.close()
