"""Partitions of tenants in UFM, through the fabric phase: set, read back, and left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.ufm import with_partitions
from rackready.drivers.ufm import client as client_module
from rackready.drivers.ufm import partitions
from rackready.ledger.store import CHANGE, Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready_sim.ufm.server import Ufm
from tests.unit.ufm.ufms import guids_of, simulated, site_of, up

NODES = ("node01", "node02", "node03", "node04")
STRANGER = "946dae03005985c8"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client_module, partitions):
        monkeypatch.setattr(module, "_POLL_S", 0.01)
    monkeypatch.setattr(partitions, "SETTLE_S", 0.2)


@pytest.fixture
def ufm() -> Ufm:
    return simulated(site_of())


class World:
    """The phase on one checkout."""

    def __init__(self, ufm: Ufm, site: Site, root: Path) -> None:
        self.ufm, self.site, self.root = ufm, site, root

    def run(self, *nodes: str, check: bool = False, guids: dict[str, list[str]] | None = None) -> dict[str, NodeResult]:
        ctx = PhaseContext("t", self.root, "c1", check=check)
        before = {node: NodeResult(Outcome.PASS, data={"changed": 0}) for node in nodes}
        return with_partitions(ctx, self.site, before, guids_of(self.ufm) if guids is None else guids)

    def members(self, key: int) -> dict[str, str]:
        """Return port GUID -> membership in the simulated UFM."""
        own = self.ufm.fabric.partitions.get(key, {"guids": {}})
        return {guid: member["membership"] for guid, member in own["guids"].items()}

    def changes(self) -> list[tuple[str, str]]:
        return [item for item in self.ufm.requests if item[0] != "GET"]


@contextmanager
def world(ufm: Ufm, folder: Path, *, tenants: bool = True) -> Iterator[World]:
    with up(ufm, folder) as own:
        site = (
            site_of(own.url, tenants=tenants, token={"file": str(own.token.file)}, ca=str(own.ca))
            if own.token
            else None
        )
        assert site is not None
        (folder / "inventories/t").mkdir(parents=True, exist_ok=True)
        yield World(ufm, site, folder)


def test_every_port_joins_the_partition_of_its_tenant_with_its_membership(ufm: Ufm, tmp_path: Path) -> None:
    with world(ufm, tmp_path) as here:
        found = here.run(*NODES)
        assert {node: (result.outcome, result.changed) for node, result in found.items()} == dict.fromkeys(
            NODES, (Outcome.PASS, True)
        )
        own = guids_of(ufm)
        assert here.members(0x11) == dict.fromkeys(sorted(own["node01"] + own["node02"]), "full")
        assert here.members(0x12) == dict.fromkeys(sorted(own["node03"] + own["node04"]), "limited")
        assert found["node03"].data["changes"][0] == f"UFM partition 0x0012: port {own['node03'][0]} limited member"
        ufm.requests.clear()
        again = here.run(*NODES)
        assert (here.changes(), [result.changed for result in again.values()]) == ([], [False] * 4)


def test_a_change_is_recorded_for_the_nodes_whose_keys_change(ufm: Ufm, tmp_path: Path) -> None:
    with world(ufm, tmp_path) as here:
        here.run("node01")
    with Ledger.open(EnvPaths(tmp_path, "t").database) as ledger:
        entry = ledger.latest("node01", CHANGE)
        assert entry is not None
        assert (entry.status, entry.result) == ("done", {"outcome": "as requested"})
        assert ledger.latest("node02", CHANGE) is None


def test_a_dry_run_names_the_changes_and_makes_none(ufm: Ufm, tmp_path: Path) -> None:
    with world(ufm, tmp_path) as here:
        found = here.run("node01", check=True)
        assert (here.changes(), found["node01"].changed, len(found["node01"].data["changes"])) == ([], True, 8)


def test_nodes_that_are_not_of_the_run_and_ports_that_the_site_does_not_know_are_left_alone(
    ufm: Ufm, tmp_path: Path
) -> None:
    own = guids_of(ufm)
    ufm.fabric.join(0x11, dict.fromkeys([STRANGER, *own["node03"], *own["node04"]], "full"), index0=True)
    with world(ufm, tmp_path) as here:
        here.run("node01", "node03")
        assert set(here.members(0x11)) == {STRANGER, *own["node01"], *own["node04"]}
        assert set(here.members(0x12)) == set(own["node03"])
    asked = [path for method, path in ufm.requests if method != "GET"]
    assert asked[0].startswith("resources/pkeys/0x11/guids/"), "ports leave before others join"


def test_a_membership_that_is_wrong_is_corrected(ufm: Ufm, tmp_path: Path) -> None:
    ufm.fabric.join(0x12, dict.fromkeys(guids_of(ufm)["node03"], "full"), index0=False)
    with world(ufm, tmp_path) as here:
        assert here.run("node03")["node03"].outcome is Outcome.PASS
        assert set(here.members(0x12).values()) == {"limited"}


def test_a_key_that_is_not_at_index_0_is_moved_there(ufm: Ufm, tmp_path: Path) -> None:
    ufm.fabric.join(0x11, dict.fromkeys(guids_of(ufm)["node01"], "full"), index0=False)
    with world(ufm, tmp_path) as here:
        assert here.run("node01")["node01"].outcome is Outcome.PASS
        assert [own["index0"] for own in ufm.fabric.partitions[0x11]["guids"].values()] == [True] * 8
        before = len(here.changes())
        here.run("node01")
        assert len(here.changes()) == before


@pytest.mark.parametrize("fault", [{"forced": "full"}, {"ignored": True}, {"ignored": True, "jobs": True}])
def test_a_partition_that_comes_back_otherwise_fails_its_nodes_alone(
    ufm: Ufm, tmp_path: Path, fault: dict[str, Any]
) -> None:
    for name, value in fault.items():
        setattr(ufm, name, value)
    with world(ufm, tmp_path) as here:
        found = here.run("node01", "node03")
    assert (found["node03"].outcome, found["node03"].changed) == (Outcome.FAIL, True)
    [finding] = found["node03"].data["findings"]
    assert finding["code"] == "ufm-partition-differs"
    assert "limited member" in finding["expected"]
    expected = Outcome.PASS if "forced" in fault else Outcome.FAIL
    assert found["node01"].outcome is expected


def test_a_job_that_fails_is_an_error_of_the_nodes(ufm: Ufm, tmp_path: Path) -> None:
    ufm.jobs, ufm.job_status = True, "Completed With Errors"
    with world(ufm, tmp_path) as here:
        found = here.run("node01")["node01"]
    assert found.outcome is Outcome.ERROR
    assert "job 1 (resources/pkeys/add) - Expected: Completed Actual: Completed With Errors" in found.message


def test_a_site_without_tenants_asks_ufm_for_nothing(ufm: Ufm, tmp_path: Path) -> None:
    with world(ufm, tmp_path, tenants=False) as here:
        assert here.run("node01")["node01"].outcome is Outcome.PASS
    assert ufm.requests == []


def test_a_node_whose_port_guids_are_unknown_is_an_error_and_the_others_go_on(ufm: Ufm, tmp_path: Path) -> None:
    with world(ufm, tmp_path) as here:
        known = {"node01": guids_of(ufm)["node01"]}
        found = here.run("node01", "node02", guids=known)
        assert [found[node].outcome for node in ("node01", "node02")] == [Outcome.PASS, Outcome.ERROR]
        assert set(here.members(0x11)) == set(known["node01"])


def test_a_node_that_failed_before_keeps_its_partitions(ufm: Ufm, tmp_path: Path) -> None:
    with world(ufm, tmp_path) as here:
        ctx = PhaseContext("t", tmp_path, "c1")
        bad = {"node01": NodeResult(Outcome.FAIL, "no ib_umad")}
        assert with_partitions(ctx, here.site, bad, guids_of(ufm)) == bad
    assert ufm.requests == []
