"""The fabric phase of a site under UFM, whole: a simulated UFM over HTTPS, and nodes whose ports follow it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.campaign import fabric
from rackready.campaign.phase_table import PHASES
from rackready.design.facts import node_facts
from rackready.drivers.ib_fabric.reading import ManagerReading, NodeReading, Reader
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from tests.unit.ufm.ufms import ROOT, document_of, guids_of, simulated, site_of, up

NODES = ["node01", "node02", "node03"]


class World:
    """A checkout with a site under UFM. The playbook passes; nodes answer with what UFM's subnet manager set."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ufm = simulated(site_of())
        self.manager = ManagerReading(has_master=True, said="SMINFO_MASTER")
        self.context = PhaseContext("t", root, "c1")
        self.playbooks: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(fabric, "in_production", lambda _ctx, _nodes: ([], {}))
        monkeypatch.setattr(fabric, "run_playbook", self._playbook)
        monkeypatch.setattr(Reader, "ports", lambda _reader, nodes: self._ports(nodes))
        monkeypatch.setattr(Reader, "guids", lambda _reader, nodes: {node: guids_of(self.ufm)[node] for node in nodes})
        monkeypatch.setattr(Reader, "reach", lambda _reader, _node, _request: NodeReading())
        monkeypatch.setattr(Reader, "manager", lambda _reader, _node, _nic: self.manager)
        monkeypatch.setattr(Reader, "subnet", self._ibnetdiscover)

    @staticmethod
    def _ibnetdiscover(*_arguments: object) -> None:
        message = "ibnetdiscover was run on a site under UFM"
        raise AssertionError(message)

    def _playbook(
        self, _ctx: PhaseContext, playbook: str, nodes: list[str], extra: dict[str, Any]
    ) -> dict[str, NodeResult]:
        self.playbooks.append((playbook, extra))
        return {node: NodeResult(Outcome.PASS, data={"changed": 0, "ok": 9}) for node in nodes}

    def _ports(self, nodes: Sequence[str]) -> dict[str, NodeReading]:
        site, guids = site_of(), guids_of(self.ufm)
        return {
            node: NodeReading(
                {
                    nic.rdma_device: {
                        "state": "4: ACTIVE",
                        "phys_state": "5: LinkUp",
                        "lid": "0x2",
                        "sm_lid": "0x1",
                        "port_guid": guid,
                        "keys": self._keys(guid),
                        "first_key": self._keys(guid)[0],
                        "problem": "",
                    }
                    for nic, guid in zip(node_facts(site, node).nics, guids[node], strict=True)
                }
            )
            for node in nodes
        }

    def _keys(self, guid: str) -> list[str]:
        """Return the keys that UFM's subnet manager gives a port."""
        held = ["0xffff" if self.ufm.fabric.default == "full" else "0x7fff"]
        for key, own in self.ufm.fabric.partitions.items():
            if guid in own["guids"]:
                member = own["guids"][guid]
                place = 0 if member["index0"] else len(held)
                held.insert(place, f"0x{key | (0x8000 if member['membership'] == 'full' else 0):04x}")
        return held

    def run(self, *nodes: str, check: bool = False) -> dict[str, NodeResult]:
        context = replace(self.context, check=check)
        return PHASES["fabric"].run(context, list(nodes))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    here = World(tmp_path, monkeypatch)
    (tmp_path / "inventories/t").mkdir(parents=True)
    (tmp_path / "playbooks").mkdir()
    shutil.copytree(ROOT / "inventories/sim-ib/profiles", tmp_path / "inventories/t/profiles")
    with up(here.ufm, tmp_path) as own:
        assert own.token is not None
        site = document_of(own.url, tenants=True, token={"file": str(own.token.file)}, ca=str(own.ca))
        (tmp_path / "inventories/t/site.yml").write_text(yaml.safe_dump(site), encoding="utf-8")
        yield here


def outcomes(found: dict[str, NodeResult]) -> dict[str, Outcome]:
    return {node: result.outcome for node, result in found.items()}


def test_a_fabric_under_ufm_passes_and_a_second_run_changes_nothing(world: World) -> None:
    found = world.run(*NODES)
    assert outcomes(found) == dict.fromkeys(NODES, Outcome.PASS), found
    assert {result.changed for result in found.values()} == {True}
    assert world.playbooks[0][0] == "fabric-infiniband.yml"
    world.ufm.requests.clear()
    again = world.run(*NODES)
    assert outcomes(again) == dict.fromkeys(NODES, Outcome.PASS)
    assert {result.changed for result in again.values()} == {False}
    assert {method for method, _ in world.ufm.requests} == {"GET"}


def test_a_dry_run_names_the_partitions_and_sets_none(world: World) -> None:
    found = world.run("node01", check=True)
    assert found["node01"].changed
    assert "UFM partition 0x0011: port" in found["node01"].data["plan"]["changes"][0]
    assert {method for method, _ in world.ufm.requests} == {"GET"}


def test_a_pulled_cable_fails_its_node_alone(world: World) -> None:
    world.ufm.fabric.pulled.add(world.ufm.fabric.state["hcas"][8]["guid"])
    found = world.run(*NODES)
    assert outcomes(found) == {"node01": Outcome.PASS, "node02": Outcome.FAIL, "node03": Outcome.PASS}
    assert found["node02"].data["findings"][0]["code"] == "cable-missing"


def test_an_open_default_partition_fails_every_node(world: World) -> None:
    world.ufm.fabric.default = "full"
    found = world.run(*NODES)
    assert outcomes(found) == dict.fromkeys(NODES, Outcome.FAIL)
    codes = {finding["code"] for finding in found["node01"].data["findings"]}
    assert codes == {"ib-port-pkeys", "ufm-default-partition-full"}


@pytest.mark.parametrize("fault", [{"absent": {"resources/pkeys"}}, {"absent": {"resources/links"}}, {"page": True}])
def test_a_ufm_that_does_not_answer_is_an_error_of_every_node(world: World, fault: dict[str, Any]) -> None:
    for name, value in fault.items():
        setattr(world.ufm, name, value)
    assert outcomes(world.run(*NODES)) == dict.fromkeys(NODES, Outcome.ERROR)


def test_a_ufm_whose_subnet_manager_is_dead_fails_every_node(world: World) -> None:
    world.manager = ManagerReading(has_master=False, said="sminfo: iberror: failed: query")
    found = world.run(*NODES)
    assert outcomes(found) == dict.fromkeys(NODES, Outcome.FAIL)
    assert {finding["code"] for finding in found["node01"].data["findings"]} == {"ib-no-subnet-manager"}


def test_the_token_is_in_no_result(world: World, tmp_path: Path) -> None:
    token = (tmp_path / "token").read_text(encoding="utf-8")
    (tmp_path / "token").write_text(f"{token}-old", encoding="utf-8")
    found = world.run("node01")
    assert outcomes(found) == {"node01": Outcome.ERROR}
    assert "HTTP 401" in found["node01"].message
    assert token not in str(found)
