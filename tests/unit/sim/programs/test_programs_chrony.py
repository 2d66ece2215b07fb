"""The simulated chrony: sources as `chronyc -c -N sources` prints them, those with which chronyd started."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rackready.ondevice import time_sources
from rackready.ondevice.command import Done
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.host import chrony
from tests.unit.sim.programs.conftest import Machine

FILE = "/etc/chrony/chrony.conf"


@pytest.fixture
def started(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(chrony, "wait_for_end", lambda: None)
    paths.at(FILE).parent.mkdir(parents=True)
    paths.at(FILE).write_text("#rackready: pool 2.debian.pool.ntp.org iburst\nserver ntp1.example iburst\n")
    assert chrony.chronyd([]) == 0
    return machine


def test_sources_are_those_of_the_last_start(started: Machine) -> None:
    rows = started.run(chrony.chronyc, "-c", "-N", "sources")[1].splitlines()
    assert [row.split(",")[:3] for row in rows] == [["^", "*", "ntp1.example"]]
    assert len(rows[0].split(",")) == 10
    assert ",192.0.2.2," in started.run(chrony.chronyc, "-c", "sources")[1]
    paths.at(FILE).write_text("pool 2.debian.pool.ntp.org iburst\n")
    assert started.run(chrony.chronyc, "-c", "-N", "sources")[1].splitlines() == rows
    chrony.chronyd([])
    assert [row.split(",")[1] for row in started.run(chrony.chronyc, "-c", "sources")[1].splitlines()] == list("*+++")


def test_the_reader_follows_a_declared_server_only(started: Machine) -> None:
    def run(argv: Sequence[str]) -> Done:
        code, out, _err = started.run(chrony.chronyc, *argv[1:])
        return Done(code, out)

    assert time_sources.chrony(run, ["ntp1.example"]) == ""
    assert time_sources.chrony(run, ["ntp2.example"]) == "chronyc sources: ^* ntp1.example reach 377"
    started.inject("clock-unsynchronised")
    assert time_sources.chrony(run, ["ntp1.example"]) == "chronyc tracking: Not synchronised"
    assert started.run(chrony.chronyc, "-c", "-N", "sources")[1].startswith("^,?,ntp1.example,2,6,0,")
