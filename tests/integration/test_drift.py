"""Drift on nodes in production: asked without a change, reported item by item, put right and re-measured. In order."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.model.drift import DriftKind
from tests.integration.project import Project

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT = ("--limit", "node01,node02")
STATE = (
    "find /etc /usr/local /opt /var/lib/rackready /var/lib/dpkg -xdev -type f -print0 | sort -z | xargs -0 sha256sum",
    "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'",
    "systemctl list-unit-files --no-legend; systemctl list-units --no-legend --plain --type=service",
    "nvidia-smi --query-gpu=power.limit,clocks.sm,persistence_mode --format=csv,noheader",
    "sysctl -n kernel.numa_balancing; for i in /sys/class/net/*; do cat $i/mtu; done",
)
"""Files by hash, packages and their holds, units, GPU settings, kernel and NIC settings."""
HAND = (
    "apt-get -qq -y --allow-change-held-packages install libnvidia-nscq=580.178.01-1 >/dev/null 2>&1",
    "systemctl -q disable --now nvidia-dcgm.service",
    "nvidia-smi -i 3 -pl 600 && nvidia-smi -i 5 -pm 0",
    "echo '# by hand' >> /etc/sysctl.d/90-rackready.conf",
)
"""A package upgraded, a unit disabled, GPU settings and a file changed behind rackready's back."""
EXPECTED = {
    (DriftKind.PACKAGE, "libnvidia-nscq"),
    (DriftKind.UNIT, "nvidia-dcgm.service"),
    (DriftKind.GPU, "gpu3 power limit and clock"),
    (DriftKind.GPU, "gpu5 persistence mode"),
    (DriftKind.FILE, "/etc/sysctl.d/90-rackready.conf"),
}


@pytest.fixture(scope="module")
def rack(project: Project) -> Project:
    """Two nodes in production."""
    project.skip_incast("node01", "node02")
    code, document = project.json("deploy", *LIMIT)
    assert code == 0, project.progress()[-2000:]
    assert {row["state"] for row in document["nodes"]} == {"ready"}
    return project


def state(project: Project, node: str) -> list[str]:
    return [project.ssh(node, command) for command in STATE]


def items(document: dict[str, Any], node: str) -> dict[tuple[str, str], dict[str, Any]]:
    row = next(row for row in document["nodes"] if row["name"] == node)
    return {(item["kind"], item["name"]): item for item in row["items"]}


def test_nodes_without_drift_are_asked_and_nothing_is_changed(rack: Project) -> None:
    before, events, sinfo = state(rack, "node01"), rack.events(), rack.sinfo()
    code, document = rack.json("drift", *LIMIT)
    assert (code, document["drift"], document["asked"]) == (0, False, True), document
    assert state(rack, "node01") == before
    assert (rack.events(), rack.sinfo()) == (events, sinfo), "the campaigns' record and the scheduler are as before"
    assert set(document["nodes"][0]["compared"]) == {"install", "fabric", "optimize", "handover"}


def test_a_node_that_was_never_deployed_cannot_be_asked(rack: Project) -> None:
    code, document = rack.json("drift", "--limit", "node04")
    assert code == 2
    assert document["nodes"][0]["not_asked"] == [
        "node04: nothing was applied to it yet. Run `rackready deploy --env sim --limit node04` first."
    ]


def test_every_change_behind_our_back_is_reported_and_nothing_is_put_right(rack: Project) -> None:
    for command in HAND:
        rack.ssh("node01", command)
    before = state(rack, "node01")
    code, document = rack.json("drift", *LIMIT)
    assert (code, document["asked"]) == (1, True), document
    found = items(document, "node01")
    assert not EXPECTED - found.keys(), found
    assert items(document, "node02") == {}
    assert state(rack, "node01") == before
    package = found[DriftKind.PACKAGE, "libnvidia-nscq"]
    assert package["expected"].startswith("580.173.02-1")
    assert package["actual"].startswith("580.178.01-1")
    assert package["since"]["run"].startswith("sim-")
    assert package["first_seen"]["run"] == document["run"]
    assert package["last_without"] is not None
    assert rack.sinfo()["node01"] == "idle", "the node stays in production"


def test_the_second_run_names_the_first_that_saw_it(rack: Project) -> None:
    code, document = rack.json("drift", *LIMIT)
    assert code == 1
    first = {item["first_seen"]["run"] for item in items(document, "node01").values()}
    assert len(first) == 1
    assert document["run"] not in first


def test_a_newer_package_is_not_replaced_without_consent(rack: Project) -> None:
    code, document = rack.json("deploy", *LIMIT)
    assert code == 1
    assert [(row["name"], row["outcome"]) for row in document["nodes"]] == [("node01", "fail"), ("node02", "pass")]
    assert (
        "Expected: libnvidia-nscq 580.178.01-1 or newer Actual: libnvidia-nscq 580.173.02-1 wanted. Choose a newer "
        "version set (software.set), or set software.allow_downgrade: true; then run again. No package was changed."
    ) in rack.progress()[-6000:]


def test_the_next_deploy_puts_it_right_and_measures_again(rack: Project) -> None:
    rack.change_site({"software": {"allow_downgrade": True}})
    code, document = rack.json("deploy", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert document["changed"] == ["node01"]
    loads = {record.gate for record in rack.evidence(document["campaign"]) if record.target == "node01"}
    assert {"node/gpu/validation/dcgm-r3", "node/gpu/performance/gemm"} <= loads, "its certificate hid nothing"
    code, document = rack.json("drift", *LIMIT)
    assert code == 0, document


def test_a_changed_host_key_is_an_item_and_the_node_is_not_asked_further(rack: Project) -> None:
    pins = rack.paths.known_hosts
    text = pins.read_text(encoding="utf-8")
    lines = text.splitlines()
    other = next(line for line in lines if line.startswith(f"{rack.address('node02')} ")).split(" ", 1)[1]
    mine = rack.address("node01")
    pins.write_text(
        "".join(f"{mine} {other}\n" if line.startswith(f"{mine} ") else f"{line}\n" for line in lines), encoding="utf-8"
    )
    try:
        code, document = rack.json("drift", *LIMIT)
    finally:
        pins.write_text(text, encoding="utf-8")
    assert code == 2
    assert [kind for kind, _ in items(document, "node01")] == [DriftKind.HOST_KEY]
    assert "no login was tried" in document["nodes"][0]["not_asked"][0]
    assert document["nodes"][1]["asked"] is True
