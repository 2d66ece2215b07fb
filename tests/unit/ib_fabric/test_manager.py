"""A subnet's manager, as sminfo tells it: a standby gets the time to take over, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.drivers.ib_fabric import findings as kinds
from rackready.drivers.ib_fabric import reading, verify
from rackready.drivers.ib_fabric.reading import ManagerReading, NodeReading, Reader, SubnetReading
from rackready.drivers.remote import Answer
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import PhaseContext
from rackready.model.place import Place
from rackready.model.site import Site
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
STANDBY = Answer(0, "sminfo: sm lid 1 sm guid 0xb83f, activity count 372 priority 14 state 2 SMINFO_STANDBY\n", "", 0.1)
MASTER = Answer(0, "sminfo: sm lid 2 sm guid 0xb83f, activity count 408 priority 15 state 3 SMINFO_MASTER\n", "", 0.1)
SILENT = Answer(
    255, "sminfo: iberror: failed: query\n", "ibwarn: [71] mad_rpc: _do_madrpc failed; dport (Lid 1)\n", 5.0
)
BLIND = Answer(255, "", "ibwarn: mad_rpc_open_port: can't open UMAD port", 0.1)
LOST = Answer(None, "", "", 3.0, failure="the connection was lost")
LATE = Answer(None, "", "", 240.0, timed_out=True)


@pytest.fixture
def site() -> Site:
    return load_site("no-overlay", site_file=ROOT / "inventories/sim-ib/site.yml", root=ROOT)


def manager(site: Site, monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> tuple[ManagerReading, int]:
    """Return what the reader says of a subnet whose sminfo answers so, and how often it asked."""
    clock, asked, told = [0.0], [0], iter(answers)
    monkeypatch.setattr(reading.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(reading.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))

    class Nodes:
        def run(self, _node: str, _argv: Sequence[str], **_more: object) -> Answer:
            asked[0] += 1
            return next(told, answers[-1])

    reader = Reader(site, EnvPaths(ROOT, "no-overlay"), [])
    monkeypatch.setattr(reader, "_remote", Nodes())
    nic = node_facts(site, "node01").nics[0]
    return reader.manager("node01", nic), asked[0]


def test_a_standby_that_takes_over_is_a_master(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = manager(site, monkeypatch, STANDBY, STANDBY, MASTER)
    assert (found, asked) == (ManagerReading(has_master=True, said=MASTER.stdout.strip()), 3)


def test_a_standby_that_stays_one_is_told_after_a_minute(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = manager(site, monkeypatch, STANDBY)
    assert (found, asked) == (ManagerReading(has_master=False, said=STANDBY.stdout.strip()), 32)


def test_without_any_answer_nothing_is_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ManagerReading(has_master=False, said="ibwarn: [71] mad_rpc: _do_madrpc failed; dport (Lid 1)")
    assert manager(site, monkeypatch, SILENT) == (silent, 1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (BLIND, "ibwarn: mad_rpc_open_port: can't open UMAD port"),
        (LOST, "the connection was lost"),
        (LATE, "no answer within 240 s"),
    ],
)
def test_a_question_that_was_not_put_tells_nothing_of_the_manager(
    site: Site, monkeypatch: pytest.MonkeyPatch, answer: Answer, why: str
) -> None:
    unasked = ManagerReading(has_master=False, unasked=f"node01 mlx5_0: {why}")
    assert manager(site, monkeypatch, answer) == (unasked, 1)


def test_a_node_with_a_finding_is_no_peer_of_the_others(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cable of node02 is out: node01 and node03 ask each other alone, and only node02 fails."""
    nodes, asked = ["node01", "node02", "node03"], dict[str, set[str]]()
    broken = kinds.PORT_STATE.found(Place("node02", "mlx5_3"), "Active at leaf01 6", "INIT")

    class Fake:
        def __init__(self, *_: object) -> None:
            pass

        def ports(self, names: Sequence[str]) -> dict[str, NodeReading]:
            port = {"lid": "0x7", "port_guid": "1", "state": "4: ACTIVE"}
            return {name: NodeReading({f"mlx5_{at}": port for at in range(12)}) for name in names}

        def reach(self, node: str, request: Sequence[dict[str, object]]) -> NodeReading:
            asked[node] = {str(item["peer"]).split()[0] for item in request}
            return NodeReading()

        def close(self) -> None:
            pass

    def judged(_site: Site, names: Sequence[str], *_: object) -> dict[str, list[Finding]]:
        return {name: [broken] if name == "node02" else [] for name in names}

    monkeypatch.setattr(verify, "Reader", Fake)
    monkeypatch.setattr(verify, "site_of", lambda _: site)
    monkeypatch.setattr(verify, "_subnet", lambda *_: SubnetReading(()))
    monkeypatch.setattr(verify, "judge_fabric", judged)
    found = verify.verify_infiniband(PhaseContext("no-overlay", tmp_path, "c1"), nodes, ["node04"])
    assert {name: one.outcome for name, one in found.items()} == {
        "node01": Outcome.PASS,
        "node02": Outcome.FAIL,
        "node03": Outcome.PASS,
    }
    assert asked == {"node01": {"node03", "node04"}, "node03": {"node01", "node04"}}
