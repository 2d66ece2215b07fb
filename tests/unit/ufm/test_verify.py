"""The fabric phase of a site under UFM: UFM's view in place of ibnetdiscover, judged as any other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from rackready.design.facts import NicFacts, node_facts
from rackready.design.infiniband import subnets
from rackready.drivers.ib_fabric.reading import ManagerReading, NodeReading, Reader, SubnetReading
from rackready.drivers.ib_fabric.verify import judge_fabric, key_remarks, result, subnet_of_ufm
from rackready.drivers.ufm import findings as ufm_findings
from rackready.drivers.ufm.reading import UfmReading, read_ufm
from rackready.model.outcome import Outcome
from rackready.model.site import Site
from rackready_sim.ufm.server import Ufm
from tests.unit.ufm.ufms import guids_of, simulated, site_of, up

NODES = ["node01", "node02"]
MASTER = ManagerReading(has_master=True, said="sminfo: sm lid 1 sm guid 0x1, ... SMINFO_MASTER")
DEAD = ManagerReading(has_master=False, said="ibwarn: [71] mad_rpc: _do_madrpc failed; dport (Lid 1)")


class Asking:
    """Answers of ports that ask the subnet manager, one after the other; the last one stays."""

    def __init__(self, *answers: ManagerReading) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def manager(self, node: str, nic: NicFacts) -> ManagerReading:
        self.asked.append(f"{node} {nic.rdma_device}")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def seen_by(
    site: Site, known: dict[str, NodeReading], ufm: UfmReading, reader: Asking | None = None
) -> list[SubnetReading]:
    asking = cast("Reader", reader or Asking(MASTER))
    return [subnet_of_ufm(asking, site, item, known, ufm) for item in subnets(site)]


@pytest.fixture
def ufm() -> Ufm:
    return simulated(site_of())


def readings(site: Site, ufm: Ufm, keys: list[str], **port: Any) -> dict[str, NodeReading]:
    """Return what the nodes tell of their ports."""
    guids = guids_of(ufm)
    common = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "lid": "0x2", "sm_lid": "0x1", "problem": ""} | port
    return {
        node: NodeReading(
            {
                nic.rdma_device: common | {"port_guid": guid, "keys": keys, "first_key": keys[0] if keys else ""}
                for nic, guid in zip(node_facts(site, node).nics, guids[node], strict=True)
            }
        )
        for node in NODES
    }


def judged(
    site: Site, ufm: Ufm, folder: Path, keys: list[str], reader: Asking | None = None, **port: Any
) -> tuple[dict[str, list[str]], UfmReading]:
    with up(ufm, folder) as own:
        seen = read_ufm(own)
    known = readings(site, ufm, keys, **port)
    found = judge_fabric(site, NODES, known, seen_by(site, known, seen, reader), seen)
    return {node: [f"{item.code} {item.where}" for item in items] for node, items in found.items() if items}, seen


def test_a_fabric_as_planned_has_no_finding(ufm: Ufm, tmp_path: Path) -> None:
    assert judged(site_of(), ufm, tmp_path, ["0xffff"])[0] == {}
    assert judged(site_of(tenants=True), ufm, tmp_path, ["0x8011", "0x7fff"])[0] == {}


def test_a_pulled_cable_is_a_finding_of_its_node(ufm: Ufm, tmp_path: Path) -> None:
    ufm.fabric.pulled.add(ufm.fabric.state["hcas"][2]["guid"])
    found, _ = judged(site_of(), ufm, tmp_path, ["0xffff"])
    [(node, [text])] = found.items()
    assert (node, text.split()[:3]) == ("node01", ["cable-missing", "node01", "mlx5_4"])


def test_a_ufm_that_does_not_answer_is_an_error_of_every_node(ufm: Ufm, tmp_path: Path) -> None:
    ufm.absent.add("resources/links")
    found, seen = judged(site_of(), ufm, tmp_path, ["0xffff"])
    assert found == {node: [f"ufm-unread {node} (subnet of leaf01)"] for node in NODES}
    assert "HTTP 404" in seen.trouble


def managed(
    ufm: Ufm, folder: Path, reader: Asking, nodes: Sequence[str] = NODES, **port: Any
) -> tuple[Outcome, list[str]]:
    """Return the outcome of node01, and its findings in words, where the ports ask the manager through ``reader``."""
    site = site_of()
    with up(ufm, folder) as own:
        seen = read_ufm(own)
    known = readings(site, ufm, ["0xffff"], **port)
    subnet = seen_by(site, {node: known[node] for node in nodes}, seen, reader)
    found = judge_fabric(site, NODES, known, subnet, seen)["node01"]
    return result("node01", found).outcome, [str(item) for item in found]


def test_a_manager_that_died_fails_although_ports_keep_its_lid_and_ufm_answers(ufm: Ufm, tmp_path: Path) -> None:
    reader = Asking(DEAD)
    outcome, [text] = managed(ufm, tmp_path, reader)
    assert (outcome, reader.asked) == (Outcome.FAIL, ["node01 mlx5_0"]), "the first one that can ask decides"
    assert text == (
        "node01 (subnet of leaf01): no subnet manager - Expected: a master subnet manager Actual: ibwarn: [71] "
        "mad_rpc: _do_madrpc failed; dport (Lid 1). Check `systemctl status 'rackready-opensm@*'` on the nodes of "
        "fabric.infiniband.nodes, the manager that the site calls external, or opensm on the UFM host."
    )


def test_a_manager_that_nobody_can_ask_is_an_error_and_neither_a_pass_nor_a_fail(ufm: Ufm, tmp_path: Path) -> None:
    lost = ManagerReading(has_master=False, unasked="node02 mlx5_0: the connection was lost")
    outcome, [text] = managed(ufm, tmp_path, Asking(lost))
    assert outcome is Outcome.ERROR
    assert text == (
        "node01 (subnet of leaf01): subnet manager not asked - Expected: an answer of the master subnet manager "
        "Actual: node02 mlx5_0: the connection was lost. Bring a port up in the subnet, and run "
        "`sminfo -C <HCA> -P 1` on its node; then run `rackready fabric` again."
    )
    outcome, [text] = managed(ufm, tmp_path, Asking(MASTER), nodes=[])
    assert (outcome, "Actual: no port of a node that is up has a link in it." in text) == (Outcome.ERROR, True)


def test_another_port_asks_where_the_first_one_cannot(ufm: Ufm, tmp_path: Path) -> None:
    reader = Asking(ManagerReading(has_master=False, unasked="node01 mlx5_0: sminfo: not found"), MASTER)
    assert managed(ufm, tmp_path, reader) == (Outcome.PASS, [])
    assert reader.asked == ["node01 mlx5_0", "node02 mlx5_0"]


def test_a_port_without_a_link_asks_nobody(ufm: Ufm, tmp_path: Path) -> None:
    reader = Asking(MASTER)
    outcome, texts = managed(ufm, tmp_path, reader, phys_state="3: Disabled", state="1: DOWN")
    assert (outcome, reader.asked, len(texts)) == (Outcome.ERROR, [], 1)


def test_a_ufm_that_is_not_read_is_told_alone(ufm: Ufm, tmp_path: Path) -> None:
    ufm.absent.add("resources/links")
    reader = Asking(DEAD)
    _, [text] = managed(ufm, tmp_path, reader)
    assert (reader.asked, ": UFM not readable - " in text) == ([], True)


def test_an_open_default_partition_joins_the_tenants(ufm: Ufm, tmp_path: Path) -> None:
    ufm.fabric.default = "full"
    assert judged(site_of(), ufm, tmp_path, ["0xffff"])[0] == {}, "without tenants it is as planned"
    found, _ = judged(site_of(tenants=True), ufm, tmp_path, ["0x8011", "0x7fff"])
    assert found == {node: [f"ufm-default-partition-full {node}"] for node in NODES}


def test_a_critical_alarm_about_a_cable_is_a_finding_of_its_port(ufm: Ufm, tmp_path: Path) -> None:
    link = ufm.fabric.links()[8]
    alarm = {"severity": "Critical", "name": "Link HW Error", "reason": "Link-Downed counter delta threshold exceeded."}
    ufm.fabric.alarms = [alarm | {"object_name": link["destination_port_name"]}]
    found, _ = judged(site_of(), ufm, tmp_path, ["0xffff"])
    assert found == {"node02": ["ufm-alarm node02 mlx5_0 (rail 1, leaf01 9)"]}
    ufm.fabric.alarms = [alarm | {"object_name": link["destination_port_name"], "severity": "Warning"}]
    assert judged(site_of(), ufm, tmp_path, ["0xffff"])[0] == {}


@pytest.mark.parametrize("keys", [["0x7fff", "0x8001"], ["0xffff", "0x8010"], ["0x8010"]])
def test_without_tenants_keys_of_others_are_noted_and_not_judged(ufm: Ufm, tmp_path: Path, keys: list[str]) -> None:
    assert judged(site_of(), ufm, tmp_path, keys)[0] == {}


@pytest.mark.parametrize(("keys", "problem"), [([], ""), ([], "smpquery pkeys exit 1"), (["0xffff"], "exit 1")])
def test_without_tenants_too_a_port_has_a_key_that_is_read(
    ufm: Ufm, tmp_path: Path, keys: list[str], problem: str
) -> None:
    found, _ = judged(site_of(), ufm, tmp_path, keys, problem=problem)
    assert {text.split()[0] for texts in found.values() for text in texts} == {"ib-port-pkeys-unread"}
    assert found.keys() == set(NODES)


def test_a_storage_partition_beside_the_tenants_is_no_fault(ufm: Ufm, tmp_path: Path) -> None:
    assert judged(site_of(tenants=True), ufm, tmp_path, ["0x8011", "0x7fff", "0x8010"])[0] == {}
    found, _ = judged(site_of(tenants=True), ufm, tmp_path, ["0x7fff", "0x8010", "0x8012"])
    assert {text.split()[0] for texts in found.values() for text in texts} == {"ib-port-pkeys"}


def test_keys_that_the_site_does_not_explain_are_told_with_a_pass_and_with_a_fail(ufm: Ufm) -> None:
    ports = dict(readings(site_of(), ufm, ["0x7fff", "0x8001"])["node01"].ports)
    ports["mlx5_3"] = {**ports["mlx5_3"], "keys": ["0xffff"]}
    ports["mlx5_4"] = {**ports["mlx5_4"], "state": "1: DOWN"}
    remarks = key_remarks(site_of(), NodeReading(ports))
    left = [name for name in ports if name not in {"mlx5_3", "mlx5_4"}]
    words = f"partition keys 0x7fff, 0x8001 of no tenant of the site on {', '.join(left)}"
    assert remarks == [words]
    found = result("node01", [], remarks=remarks)
    assert (found.outcome, found.message) == (
        Outcome.PASS,
        f"node01: every cable is as planned, and every port Active; noted: {words}",
    )
    alarm = ufm_findings.OPEN.found("node01", "limited", "full")
    found = result("node01", [alarm], remarks=remarks)
    assert (found.outcome, found.message) == (Outcome.FAIL, f"{alarm}; noted: {words}")


def test_what_was_measured_and_differs_fails(ufm: Ufm, tmp_path: Path) -> None:
    ufm.fabric.default = "full"
    site = site_of(tenants=True)
    with up(ufm, tmp_path) as own:
        seen = read_ufm(own)
    known = readings(site, ufm, ["0x8011", "0x7fff"])
    found = judge_fabric(site, NODES, known, seen_by(site, known, seen), seen)
    assert result("node01", found["node01"]).outcome is Outcome.FAIL
