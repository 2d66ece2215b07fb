"""Drift of partitions: what somebody changed in UFM since the fabric phase."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackready.campaign.drift.applied import Applied
from rackready.campaign.drift.found import DriftReading
from rackready.campaign.drift.ufm import compare_ufm
from rackready.drivers.ufm.client import UfmClient
from rackready.drivers.ufm.partitions import carry_out, compare, read, wanted_partitions
from rackready.model.infiniband import Ufm as UfmSite
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready_sim.ufm.server import Ufm
from tests.unit.ufm.ufms import guids_of, simulated, site_of, up

DONE = Applied(("install", "fabric"))


@pytest.fixture
def ufm() -> Ufm:
    return simulated(site_of())


def site_at(own: UfmSite) -> Site:
    assert own.token is not None
    return site_of(own.url, tenants=True, token={"file": str(own.token.file)}, ca=str(own.ca))


def drift(folder: Path, own: UfmSite, *nodes: str, applied: Applied = DONE) -> dict[str, DriftReading]:
    found = {node: DriftReading() for node in nodes}
    compare_ufm(EnvPaths(folder, "t"), site_at(own), dict.fromkeys(nodes, applied), found)
    return found


def test_a_port_that_somebody_moved_is_drift_of_its_node(ufm: Ufm, tmp_path: Path) -> None:
    guids = guids_of(ufm)
    state = EnvPaths(tmp_path, "t").state
    state.mkdir(parents=True)
    (state / "port-guids.json").write_text(json.dumps(guids), encoding="utf-8")
    with up(ufm, tmp_path) as own:
        site = site_at(own)
        ours = {int(guid, 16) for node in guids for guid in guids[node]}
        with UfmClient(own) as client:
            carry_out(client, compare(wanted_partitions(site, list(guids), guids), read(client), ours))
        assert [one.items for one in drift(tmp_path, own, "node01", "node03").values()] == [[], []]
        first, second = guids["node03"][:2]
        ufm.fabric.leave(0x12, [first])
        ufm.fabric.join(0x12, {second: "full"}, index0=False)
        ufm.fabric.join(0x11, {first: "full"}, index0=False)
        ufm.requests.clear()
        found = drift(tmp_path, own, "node01", "node03")
        assert found["node01"].items == []
        assert {(item.name, item.expected, item.actual) for item in found["node03"].items} == {
            (f"UFM partition 0x0011, port {first}", "no member", "full member"),
            (f"UFM partition 0x0012, port {first}", "limited member", "no member"),
            (f"UFM partition 0x0012, port {second}", "limited member", "full member"),
        }
        assert {method for method, _ in ufm.requests} == {"GET"}


def test_a_ufm_that_does_not_answer_is_not_asked(ufm: Ufm, tmp_path: Path) -> None:
    ufm.page = True
    with up(ufm, tmp_path) as own:
        found = drift(tmp_path, own, "node01")
    assert found["node01"].not_asked[-1].startswith("partitions in UFM: UFM resources/pkeys")


def test_a_node_whose_ports_are_not_known_is_no_clean_node(ufm: Ufm, tmp_path: Path) -> None:
    with up(ufm, tmp_path) as own:
        found = drift(tmp_path, own, "node01")["node01"]
    assert (found.items, found.not_asked) == (
        [],
        ["partitions in UFM: its port GUIDs are not known. Run `rackready fabric`."],
    )


def test_a_node_without_a_fabric_phase_is_not_compared(ufm: Ufm, tmp_path: Path) -> None:
    with up(ufm, tmp_path) as own:
        assert drift(tmp_path, own, "node01", applied=Applied(("install",)))["node01"] == DriftReading()
    assert ufm.requests == []
