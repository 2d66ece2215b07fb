"""A leftover of all nodes that several runs find at once: threads of one campaign, and workers on other machines."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rackready.drivers.scheduler.base import NotOursError, SchedulerError
from rackready.drivers.scheduler.reserve import reserved
from rackready.drivers.scheduler.slurm import SlurmAdapter
from tests.gates.test_launchers import FLAGS, HELD, Cluster

OF_ALL = HELD.format("rackready-node01", "node[01-04]", FLAGS, "root")


class Slow(Cluster):
    """A cluster that keeps reservations, refuses to delete one that is gone, and takes its time to list them."""

    def __init__(self, **drained: str) -> None:
        super().__init__(**drained)
        self.reservations = OF_ALL
        self.turn = threading.Lock()
        self.resumed_then_drained: list[str] = []
        self.inside: set[str] = set()

    def run(self, command: str) -> tuple[int, str, str]:
        with self.turn:
            name = command.rpartition("=")[2]
            if command.startswith("scontrol delete") and f"ReservationName={name} " not in self.reservations:
                # ESLURM_RESERVATION_INVALID (Slurm's src/common/slurm_errno.c)
                return 1, "", "slurm_delete_reservation: Requested reservation is invalid"
            found = super().run(command)
            if made := re.search(r"create reservation ReservationName=(\S+) .*Nodes=(\S+)", command):
                line = HELD.format(made[1], made[2], FLAGS, "root")
                self.reservations = "\n".join([*self.reservations.splitlines(), line])
            node = (re.search(r"NodeName=(\S+)", command) or ["", ""])[1]
            if "State=DRAIN" in command and node in self.inside:
                self.resumed_then_drained.append(node)
        if command.startswith("scontrol show"):
            time.sleep(0.02)
        return found


def test_pairs_side_by_side_end_a_leftover_of_all_their_nodes_once() -> None:
    cluster = Slow()
    together = threading.Barrier(2)

    def measure(nodes: list[str]) -> None:
        together.wait()
        with reserved(SlurmAdapter(cluster.run, "here", patience_s=0), nodes):
            cluster.inside |= set(nodes)
            time.sleep(0.2)
            cluster.inside -= set(nodes)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(measure, [["node01", "node02"], ["node03", "node04"]]))
    deleted = [command for command in cluster.said if command.startswith("scontrol delete")]
    drained = [command for command in cluster.said if "a killed measurement left it" in command]
    assert (len(deleted), len(drained), cluster.resumed_then_drained) == (3, 4, [])
    assert set(cluster.drained) == {"node01", "node02", "node03", "node04"}


def test_a_leftover_that_another_machine_deleted_meanwhile_is_no_error() -> None:
    cluster = Slow(node01="rackready: held", node02="rackready: x", node03="rackready: x", node04="rackready: x")

    def other_first(command: str) -> tuple[int, str, str]:
        if command == "scontrol delete ReservationName=rackready-node01" and "node[01-04]" in cluster.reservations:
            cluster.run(command)
        return cluster.run(command)

    with reserved(SlurmAdapter(other_first, "here", patience_s=0), ["node01", "node02"]) as name:
        assert name == "rackready-node01"


def test_one_that_stays_is_an_error() -> None:
    def refuse(command: str) -> tuple[int, str, str]:
        return (1, "", "Access/permission denied") if command.startswith("scontrol delete") else cluster.run(command)

    cluster = Slow()
    with pytest.raises(SchedulerError, match="Access/permission denied"):
        reserved(SlurmAdapter(refuse, "here"), ["node01"]).__enter__()


@pytest.mark.parametrize("now", ["node[03-04]", ""], ids=["measured", "handed over"])
def test_a_node_that_another_machine_measures_or_handed_over_since_is_not_drained(now: str) -> None:
    """This run had listed the leftover before the other one ended it."""
    cluster = Slow(node01="rackready: held", node02="rackready: held")
    listed = []

    def run(command: str) -> tuple[int, str, str]:
        found = cluster.run(command)
        if command.startswith("scontrol show reservation") and not listed:
            listed.append(command)
            cluster.reservations = HELD.format("rackready-node03", now, FLAGS, "root") if now else "none"
        return found

    with reserved(SlurmAdapter(run, "here", patience_s=0), ["node01", "node02"]):
        assert [command for command in cluster.said if "State=DRAIN" in command] == []


def test_a_reservation_of_the_same_name_that_another_machine_made_since_stays() -> None:
    """The other one ended the leftover, and measures two of its nodes; this run had listed it before."""
    cluster = Slow(node03="rackready: held", node04="rackready: held")
    listed = []

    def run(command: str) -> tuple[int, str, str]:
        found = cluster.run(command)
        if command.startswith("scontrol show reservation") and not listed:
            listed.append(command)
            cluster.reservations = HELD.format("rackready-node01", "node[01-02]", FLAGS, "root")
        return found

    with reserved(SlurmAdapter(run, "here", patience_s=0), ["node03", "node04"]):
        assert "ReservationName=rackready-node01 " in cluster.reservations
        assert [command for command in cluster.said if "node01" in command or "node02" in command] == []


def test_a_node_in_two_leftovers_is_drained_with_the_last() -> None:
    cluster = Slow()
    cluster.reservations = "\n".join([OF_ALL, HELD.format("rackready-node02", "node[01-02]", FLAGS, "root")])
    with reserved(SlurmAdapter(cluster.run, "here", patience_s=0), ["node01", "node02"]):
        ended = [re.sub(r".*Name=(\S+).*", r"\1", command) for command in cluster.said[:6]]
    assert ended == ["node03", "node04", "rackready-node01", "node01", "node02", "rackready-node02"]


def test_a_drain_whose_reason_slurmctld_replaced_is_not_lifted_for_a_measurement() -> None:
    cluster = Cluster(node01="Low RealMemory")

    def run(command: str) -> tuple[int, str, str]:
        config = command == "scontrol show config"
        return (0, "SlurmUser               = root(0)\n", "") if config else cluster.run(command)

    with pytest.raises(NotOursError) as caught:
        reserved(SlurmAdapter(run, "here"), ["node01"]).__enter__()
    assert str(caught.value) == (
        "node01: drained in Slurm by somebody else - Expected: a reason that begins with 'rackready:' "
        "Actual: 'Low RealMemory'. Nothing was started there. slurmctld writes this over any reason, also over a "
        "person's: if nobody holds it back, `scontrol update NodeName=node01 State=DRAIN "
        "Reason='rackready: registered in full'`, then run again."
    )
    assert cluster.said == []
