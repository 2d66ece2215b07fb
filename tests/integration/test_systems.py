"""Every operating system in one rack: its smallest whole part, installed and asked again. Tests run in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.project import Project, standing_rack

pytestmark = pytest.mark.integration

NODES = {"node01": "ubuntu 24.04", "node02": "ubuntu 22.04", "node03": "rocky 9.5"}
"""The nodes and what their /etc/os-release says; test_main_job deploys Debian 12."""
LIST = dict.fromkeys(NODES, "dpkg-query -W 'nvidia*580*'") | {"node03": "rpm -qa 'kmod-nvidia*'"}
"""Lists the packages of the driver."""
KEPT = {
    "node01": ("netplan", "netplan apply; systemctl restart systemd-networkd.service"),
    "node02": ("netplan", "networkctl reload; systemctl restart systemd-networkd.service"),
    "node03": ("networkmanager", "nmcli connection reload; systemctl restart NetworkManager.service"),
}
"""The manager of each node, and what an administrator does with it; test_main_job has Debian 12 and its ifupdown."""
LIMIT = ("--limit", ",".join(NODES))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, image: None) -> Iterator[Project]:
    """The rack of `inventories/sim-mixed`, its chosen nodes booted."""
    del image
    with standing_rack(tmp_path_factory.mktemp("mixed") / "clone", "sim-mixed") as rack:
        code, text = rack.run("provision", *LIMIT)
        assert code == 0, text + rack.progress()[-2000:]
        yield rack


@pytest.fixture(scope="module")
def installed(mixed: Project) -> dict[str, Any]:
    """What the first install says."""
    code, document = mixed.json("install", *LIMIT)
    assert code == 0, mixed.progress()[-4000:]
    return document


def test_each_node_has_its_system_and_gets_its_packages(mixed: Project, installed: dict[str, Any]) -> None:
    systems = {name: mixed.ssh(name, '. /etc/os-release && echo "$ID $VERSION_ID"').strip() for name in NODES}
    assert systems == NODES
    assert _outcomes(installed) == dict.fromkeys(NODES, "pass")
    packages = {name: mixed.ssh(name, LIST[name]) for name in NODES}
    assert {name for name, text in packages.items() if "580.173.02" in text} == set(NODES), packages


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_second_install_changes_nothing_on_any_of_them(mixed: Project) -> None:
    code, document = mixed.json("install", *LIMIT)
    assert code == 0, mixed.progress()[-4000:]
    assert document["changed"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_network_manager_of_each_system_keeps_the_rails(mixed: Project) -> None:
    code, document = mixed.json("fabric", *LIMIT)
    assert code == 0, mixed.progress()[-4000:]
    assert set(document["changed"]) == set(NODES)
    assert {name: _manager(mixed, name) for name in NODES} == {name: {way} for name, (way, _) in KEPT.items()}
    for name, (_, reload) in KEPT.items():
        mixed.ssh(name, f"echo {_password(mixed)} | sudo -S sh -c '{reload}' 2>&1")
    code, document = mixed.json("fabric", *LIMIT)
    assert code == 0, mixed.progress()[-4000:]
    assert document["changed"] == [], "neither a reload nor a restart flushed anything"


def _manager(rack: Project, node: str) -> set[str]:
    rails = json.loads(rack.ssh(node, "cat /etc/rackready/roce.json"))
    return {rail["manager"] for rail in rails.values()}


def _password(rack: Project) -> str:
    return (rack.paths.base / "sim/secrets/sudo").read_text(encoding="utf-8").strip()


def _outcomes(document: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["outcome"] for node in document["nodes"]}
