"""An InfiniBand rack: opensm and the cables as rackready leaves and finds them. Tests run in order on one rack."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.project import Project, standing_rack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODES = ("node01", "node02", "node03")
LIMIT = ("--limit", ",".join(NODES))
BANDWIDTH = "pair/fabric/performance/ib-write-bw"
_SWEEP_S = 12.0
"""opensm sweeps every 10 s, and the nodes tell the switches of their ports every second."""


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory, image: None) -> Iterator[Project]:
    """The rack of `inventories/sim-ib` with three installed nodes."""
    del image
    with standing_rack(tmp_path_factory.mktemp("ib") / "clone", "sim-ib") as made:
        for phase in ("provision", "install"):
            code, text = made.run(phase, *LIMIT)
            assert code == 0, text + made.progress()[-4000:]
        yield made


def test_the_fabric_comes_up_with_a_manager_for_each_leaf(rack: Project) -> None:
    code, document = rack.json("fabric", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert _outcomes(document) == dict.fromkeys(NODES, "pass")
    for device in ("mlx5_0", "mlx5_6"):
        assert "SMINFO_MASTER" in rack.ssh("node03", f"sminfo -C {device} -P 1")
    assert "Entering STANDBY state" in rack.ssh("node02", "cat /var/log/rackready-opensm-leaf01.log")


def test_a_second_run_changes_nothing(rack: Project) -> None:
    code, document = rack.json("fabric", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert document["changed"] == []


@pytest.mark.parametrize(
    ("fault", "code", "ends"),
    [
        (("nic-down", "--nic", "3"), "cable-missing", ("node02 mlx5_4", "leaf01 7")),
        (("cables-swapped", "--nic", "1", "--other", "2"), "cable-swapped", ("node02 mlx5_0", "leaf01 5", "leaf01 6")),
    ],
)
def test_a_wrong_cable_is_found_with_both_of_its_ends(
    rack: Project, fault: tuple[str, ...], code: str, ends: tuple[str, ...]
) -> None:
    rack.run("sim", "inject", "node02", *fault)
    time.sleep(_SWEEP_S)
    status, document = rack.json("fabric", *LIMIT)
    assert status == 1
    assert _outcomes(document) == {"node01": "pass", "node02": "fail", "node03": "pass"}
    [finding] = next(node["findings"] for node in document["nodes"] if node["name"] == "node02")
    assert finding["code"] == code
    text = " ".join((finding["where"], finding["expected"], finding["actual"]))
    assert [end for end in ends if end not in text] == []
    rack.run("sim", "clear", "node02")
    time.sleep(_SWEEP_S)


def test_repaired_cables_pass_again(rack: Project) -> None:
    code, document = rack.json("fabric", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert _outcomes(document) == dict.fromkeys(NODES, "pass")


def _outcomes(document: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["outcome"] for node in document["nodes"]}


TENANTS = [
    {"name": "red", "nodes": ["node[01-02]"], "pkey": "0x0011"},
    {"name": "blue", "nodes": ["node[03-04]"], "pkey": "0x0012", "full_member": False},
]


def test_tenants_have_their_partitions_and_no_others(rack: Project) -> None:
    """GUIDs of ports are read from the kernel. node04 is off, so its ports have none."""
    rack.change_site({"tenants": TENANTS})
    code, document = rack.json("fabric", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert _outcomes(document) == dict.fromkeys(NODES, "pass")
    # The master's port is a full member for subnet management; others are limited ones. The tenant's key comes first.
    for node, device, keys in (("node01", "mlx5_0", "0x8011 0xffff"), ("node02", "mlx5_3", "0x8011 0x7fff")):
        assert f"0: {keys}" in rack.ssh(node, f"smpquery -C {device} -P 1 -D pkeys 0")
    assert "0: 0x0012 0x7fff" in rack.ssh("node03", "smpquery -C mlx5_0 -P 1 -D pkeys 0")


def test_data_of_a_tenant_flow_between_its_nodes(rack: Project) -> None:
    """Programs use the key at index 0: perftest and NCCL are told of no other."""
    code, document = rack.json("gate", "run", BANDWIDTH, "--node", "node01", "--node", "node02")
    assert code == 0, rack.progress()[-4000:]
    assert {name: node["outcome"] for name, node in document["nodes"].items()} == {"node01": "pass", "node02": "pass"}


def test_the_gate_on_error_rates_reads_both_ends_of_every_cable(rack: Project) -> None:
    """Five seconds prove no bit error rate: that is all that it has to say."""
    gate = "node/fabric/stress/ib-errors"
    rack.change_site({"gates": {"also": [{"id": gate, "max_age_hours": 1, "inputs": {"window_s": 5}}]}})
    code, document = rack.json("gate", "run", gate, "--node", "node01")
    assert code == 2, rack.progress()[-4000:]
    found = [item for record in rack.evidence(document["campaign"]) for item in record.verdict.findings]
    assert {item.code for item in found} == {"ib-error-window-too-short"}
    assert len({item.where for item in found}) == 16, "8 ports, and the switch ports at their cables"
