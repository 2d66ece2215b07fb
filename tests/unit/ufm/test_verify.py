"""The fabric phase of a site under UFM: UFM's view in place of ibnetdiscover, judged as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.facts import node_facts
from rackready.design.infiniband import subnets
from rackready.drivers.ib_fabric.reading import NodeReading
from rackready.drivers.ib_fabric.verify import judge_fabric, result, subnet_of_ufm
from rackready.drivers.ufm.reading import UfmReading, read_ufm
from rackready.model.outcome import Outcome
from rackready.model.site import Site
from rackready_sim.ufm.server import Ufm
from tests.unit.ufm.ufms import guids_of, simulated, site_of, up

NODES = ["node01", "node02"]


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
                nic.rdma_device: common | {"port_guid": guid, "keys": keys}
                for nic, guid in zip(node_facts(site, node).nics, guids[node], strict=True)
            }
        )
        for node in NODES
    }


def judged(site: Site, ufm: Ufm, folder: Path, keys: list[str], **port: Any) -> tuple[dict[str, list[str]], UfmReading]:
    with up(ufm, folder) as own:
        seen = read_ufm(own)
    known = readings(site, ufm, keys, **port)
    subnet = [subnet_of_ufm(site, item, known, seen) for item in subnets(site)]
    found = judge_fabric(site, NODES, known, subnet, seen)
    return {node: [f"{item.code} {item.where}" for item in items] for node, items in found.items() if items}, seen


def test_a_fabric_as_planned_has_no_finding(ufm: Ufm, tmp_path: Path) -> None:
    assert judged(site_of(), ufm, tmp_path, ["0xffff"])[0] == {}
    assert judged(site_of(tenants=True), ufm, tmp_path, ["0x7fff", "0x8011"])[0] == {}


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


def test_no_lid_of_a_subnet_manager_means_that_none_manages_the_subnet(ufm: Ufm, tmp_path: Path) -> None:
    found, _ = judged(site_of(), ufm, tmp_path, ["0xffff"], sm_lid="0x0")
    assert found == {node: [f"ib-no-subnet-manager {node} (subnet of leaf01)"] for node in NODES}


def test_an_open_default_partition_joins_the_tenants(ufm: Ufm, tmp_path: Path) -> None:
    ufm.fabric.default = "full"
    assert judged(site_of(), ufm, tmp_path, ["0xffff"])[0] == {}, "without tenants it is as planned"
    found, _ = judged(site_of(tenants=True), ufm, tmp_path, ["0x7fff", "0x8011"])
    assert found == {node: [f"ufm-default-partition-full {node}"] for node in NODES}


def test_a_critical_alarm_about_a_cable_is_a_finding_of_its_port(ufm: Ufm, tmp_path: Path) -> None:
    link = ufm.fabric.links()[8]
    alarm = {"severity": "Critical", "name": "Link HW Error", "reason": "Link-Downed counter delta threshold exceeded."}
    ufm.fabric.alarms = [alarm | {"object_name": link["destination_port_name"]}]
    found, _ = judged(site_of(), ufm, tmp_path, ["0xffff"])
    assert found == {"node02": ["ufm-alarm node02 mlx5_0 (rail 1, leaf01 9)"]}
    ufm.fabric.alarms = [alarm | {"object_name": link["destination_port_name"], "severity": "Warning"}]
    assert judged(site_of(), ufm, tmp_path, ["0xffff"])[0] == {}


def test_what_was_measured_and_differs_fails(ufm: Ufm, tmp_path: Path) -> None:
    ufm.fabric.default = "full"
    site = site_of(tenants=True)
    with up(ufm, tmp_path) as own:
        seen = read_ufm(own)
    known = readings(site, ufm, ["0x7fff", "0x8011"])
    subnet = [subnet_of_ufm(site, item, known, seen) for item in subnets(site)]
    assert result("node01", judge_fabric(site, NODES, known, subnet, seen)["node01"]).outcome is Outcome.FAIL
