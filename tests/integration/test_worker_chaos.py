"""Rounds with workers, played without a rack: on programs whose phase does what must not be done twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import pytest

from rackready.paths import EnvPaths
from rackready_sim.plan import clone_id
from tests import forked
from tests.integration.left_behind import Note
from tests.integration.project import Project
from tests.integration.worker_chaos import DELAYS_S, PHASES, Blow, WorkerRound, draw, names_of
from tests.integration.worker_checks import Span, overlaps, problems, repeated
from tests.integration.worker_nets import Nets
from tests.postgres import programs
from tests.unit.campaign.worker_lab import PROGRAM, write_site


class Programs:
    """In the place of a project with a rack."""

    env = "lab"

    def __init__(self, root: Path) -> None:
        self.root, self.paths = root, EnvPaths(root, "lab")
        write_site(root)

    def start(self, *_deploy: str) -> forked.Child:
        """Start a controller, as the deploy."""
        return self._program(None, "controller")

    def start_worker(self, name: str, out: Path, begin: Sequence[str]) -> forked.Child:
        """Start a worker."""
        with out.open("a", encoding="utf-8") as sink:
            return self._program(sink, "worker", name, begin=begin)

    def _program(self, out: IO[str] | None, *part: str, begin: Sequence[str] = ()) -> forked.Child:
        with (self.root / "progress.log").open("a", encoding="utf-8") as log:
            env = os.environ | {"MODE": "slow"}
            return forked.start([PROGRAM, self.root, *part], out=out, err=log, env=env, on=begin)

    def progress(self) -> str:
        return (self.root / "progress.log").read_text(encoding="utf-8")


def test_points_follow_from_the_seed_and_hit_workers_and_the_database() -> None:
    assert draw(7) == draw(7) != draw(8)
    for seed in range(20):
        blows = draw(seed)
        assert [blow.phase for blow in blows] == sorted([blow.phase for blow in blows], key=PHASES.index)
        assert {"worker", "machine", "database"} == {blow.at for blow in blows}
        assert all(0 <= blow.delay_s <= DELAYS_S[blow.phase] for blow in blows)


def test_with_cuts_the_database_is_restarted_and_three_cables_are_pulled() -> None:
    for seed in range(20):
        blows = draw(seed, cuts=True)
        assert [blow.at for blow in blows] == ["cut", "database", "controller", "apart"]
        assert [blow.phase for blow in blows] == sorted([blow.phase for blow in blows], key=PHASES.index)


def test_two_claims_of_a_node_at_once_are_found() -> None:
    first = Span(1, "w1", frozenset({"node01", "node02"}), 100.0, 110.0)
    after = Span(2, "w2", frozenset({"node02"}), 110.5, 120.0)
    beside = Span(3, "w3", frozenset({"node03"}), 100.0, 120.0)
    early = Span(4, "w2", frozenset({"node01"}), 108.0, 120.0)
    assert overlaps([first, after, beside]) == []
    assert overlaps([first, after, early]) == ["claim 4 had node01 2.0 s before claim 1 ended"]


def test_an_effect_that_was_done_twice_is_found_and_a_reading_is_none() -> None:
    effects = [("node01", "power-on", "on", 1), ("node02", "power-on", "on", 1), ("node01", "power-on", "on", 2)]
    again = [("node01", operation, "as before", 1) for operation in ("changed", "parts-seen", "install:install.yml")]
    assert repeated([*effects, *again, *again]) == []
    assert repeated([*effects, effects[0], *again]) == ["node01: power-on was done 2 times"]


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
        left: list[Any] = [
            text for text in problems(made.server, made.database, made.project) if not text.startswith("only ")
        ]
        assert left == ["no evidence is on record"], "this phase measures nothing"
    finally:
        made.close()


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.skipif(programs() is None, reason="no PostgreSQL server is installed")
def test_a_round_on_machines_of_their_own_with_cables_that_are_pulled(tmp_path: Path) -> None:
    """As `make chaos WORKERS=3`, but for the rack: kills by the clock, a worker cut off, then the controller."""
    said: list[str] = []
    nets = Nets(f"rr-{clone_id(tmp_path)}")
    note = Note(nets.prefix)
    project = Programs(tmp_path)
    try:
        nets.begin(names_of(3))
        made = WorkerRound(cast("Project", project), 3, said.append, 1, nets=nets, every_s=15, partition_s=30)
        note.add(made.server.folder)
        try:
            struck = made.play([Blow("install", 0.5, at) for at in ("cut", "controller")])
            made.stop_workers()
            assert (struck.code, struck.missed, struck.wrong) == (0, [], []), (said, project.progress()[-3000:])
            assert struck.kills
            done = (tmp_path / "world.log").read_text(encoding="utf-8").split()
            assert sorted(done) == ["node01", "node02", "node03", "node04"]
            left = [text for text in problems(made.server, made.database, made.project) if "only " not in text]
            assert left == ["no evidence is on record"], "this phase measures nothing"
        finally:
            made.close()
    finally:
        nets.close()
        note.done()
