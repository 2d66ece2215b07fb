"""Isolated tenants on switches: golden files, and the way from the site to FRR's text in the simulated switch."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rackready.design.deployable import NotDeployableError, require
from rackready.design.facts import node_facts
from rackready.design.roce_vars import roce_interfaces
from rackready.design.site import load_site
from rackready.design.switch_systems import SYSTEMS
from rackready.design.switches import Gateway, UnderlayUnsupportedError, switch_config
from rackready.design.yaml import read_yaml
from rackready.drivers.switch.cumulus_nvue import render_config
from rackready.drivers.switch.nvue_text import document, expand_commands
from rackready.model.site import Site
from rackready_sim.hardware import build_switch_state
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.switch import document as nvue_document
from rackready_sim.programs.hwsim.switch import frrconf, schema
from tests.unit.design.written import parse

HERE = Path(__file__).resolve().parent
LEAF, SPINE = "leaf-su001-01", "spine-002"
RESEARCH = {"name": "research", "nodes": ["node01", "node03"], "vlan": 1201, "vrf": "research", "vni": 100201}
PRODUCT = {"name": "product", "nodes": ["node02"], "vlan": 1301, "vrf": "product", "vni": 100301}


def tenants() -> Site:
    """The two-tier site: node01 and node03 of research, node02 of product, node04 of nobody."""
    document = read_yaml(HERE / "sites/two_tier.yml")
    document["tenants"] = [RESEARCH, PRODUCT]
    return parse(document)


def settings(site: Site, name: str) -> set[tuple[str, ...]]:
    return {tokens[2:] for tokens in expand_commands(render_config(switch_config(site, name)))}


@pytest.mark.parametrize("syntax", [True, False], ids=["since-5.15", "before-5.15"])
@pytest.mark.parametrize("name", [LEAF, SPINE])
def test_a_switch_of_isolated_tenants_is_as_reviewed(name: str, syntax: bool) -> None:  # noqa: FBT001 - a case
    text = render_config(switch_config(tenants(), name), roce_state_syntax=syntax)
    golden = HERE / "cumulus_nvue" / f"{name}-tenants{'' if syntax else '-before-5.15'}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_tenants_of_one_leaf_share_no_vlan_and_no_routing_table() -> None:
    leaf = switch_config(tenants(), LEAF)
    vlans = {port.node: {other.vlan for other in leaf.ports if other.node == port.node} for port in leaf.ports}
    assert vlans["node01"] == set(range(1201, 1209))
    assert vlans["node02"] == set(range(1301, 1309))
    assert {gateway.vrf for gateway in leaf.gateways} == {"research", "product"}
    assert Gateway(1201, "192.168.0.1/24", "research") in leaf.gateways
    assert leaf.announced == ("10.30.0.1/32",)
    assert [vrf.vni for vrf in leaf.vrfs] == [100301, 100201]


def test_a_leaf_with_a_node_of_nobody_keeps_its_own_rails_beside_the_tenants() -> None:
    leaf = switch_config(tenants(), "leaf-su002-01")
    assert {port.vlan for port in leaf.ports if port.node == "node04"} == set(range(901, 909))
    assert {gateway.vrf for gateway in leaf.gateways} == {"", "research"}
    assert "192.168.8.0/24" in leaf.announced
    assert [vrf.name for vrf in leaf.vrfs] == ["research"]


def test_a_spine_passes_routes_on_and_has_no_vrf() -> None:
    spine = switch_config(tenants(), SPINE)
    assert (spine.overlay, spine.vrfs) == (True, ())
    text = render_config(spine)
    assert "l2vpn-evpn" in text
    assert "nve" not in text


def test_without_isolated_tenants_nothing_of_it_is_written() -> None:
    document = read_yaml(HERE / "sites/two_tier.yml")
    document["tenants"] = [{"name": "research", "nodes": ["node01"]}]
    text = render_config(switch_config(parse(document), LEAF))
    assert "evpn" not in text
    assert text == (HERE / "cumulus_nvue" / f"{LEAF}.txt").read_text(encoding="utf-8")


def test_a_node_knows_its_tenant_so_that_it_pings_no_other() -> None:
    site = tenants()
    assert {one["tenant"] for one in roce_interfaces(site, node_facts(site, "node02"))} == {"product"}
    assert all("tenant" not in one for one in roce_interfaces(site, node_facts(site, "node04")))


STEP = "Give all three, or none: nodes are then not isolated."


@pytest.mark.parametrize(
    ("changes", "fabric", "said"),
    [
        (
            ({"vni": None}, {}),
            {},
            f"tenant research: no vni - Expected: vlan, vrf and vni. {STEP}",
        ),
        (
            ({"vrf": "mgmt"}, {}),
            {},
            "tenant research: VRF of the switch itself - Actual: mgmt. Choose another name.",
        ),
        (
            ({}, {"vlan": 1205}),
            {},
            (
                "tenant product: its VLANs from 1205 overlap those of tenant research from 1201. "
                "Leave 8 VLANs to each: one for each rail and plane."
            ),
        ),
        (
            ({"vlan": 905}, {"vlan": 4090}),
            {},
            (
                "tenant research: its VLANs from 905 overlap those of networks.compute from 901. "
                "Leave 8 VLANs to each: one for each rail and plane."
            ),
        ),
        (
            ({}, {"vlan": 4090}),
            {},
            (
                "tenant product: 8 VLANs from 4090, one for each rail and plane - "
                "Expected: at most 4094 Actual: end at 4097. Start with a lower VLAN."
            ),
        ),
        (
            ({}, {}),
            {"mtu": 9200},
            (
                "fabric.mtu: isolated tenants need 50 bytes more between switches - "
                "Expected: at most 9166 bytes Actual: 9200. Lower fabric.mtu, or raise fabric.switch_mtu."
            ),
        ),
    ],
    ids=["part", "own VRF", "overlap", "rails", "range", "MTU"],
)
def test_what_cannot_be_isolated_is_refused(
    changes: tuple[dict[str, object], dict[str, object]], fabric: dict[str, object], said: str
) -> None:
    document = read_yaml(HERE / "sites/two_tier.yml")
    document["fabric"] |= fabric
    document["networks"]["compute"]["vlan_first"] = 901
    document["tenants"] = [
        {key: value for key, value in (tenant | change).items() if value is not None}
        for tenant, change in zip((RESEARCH, PRODUCT), changes, strict=True)
    ]
    if changes[0].get("vlan") == 905:  # the site check refuses the same VLAN; here, only the block overlaps
        document["tenants"][0]["vlan"] = 895
        said = said.replace("from 905", "from 895")
    with pytest.raises(NotDeployableError) as caught:
        require(parse(document), ["node01"], "fabric")
    assert said in str(caught.value)


def test_other_systems_are_refused() -> None:
    document = read_yaml(HERE / "sites/two_tier.yml")
    document["networks"]["underlay"] = {"links": "numbered", "pool": "10.31.0.0/22"}
    document["tenants"] = [RESEARCH]
    for switch in document["switches"]:
        switch.update(os="sonic")
    with pytest.raises(NotDeployableError) as caught:
        require(parse(document), ["node01"], "fabric")
    assert (
        "tenants: rackready does not isolate tenants on these switches - "
        "Expected: a system with EVPN Actual: sonic. "
        "Leave out vlan, vrf and vni, and isolate the tenants by hand."
    ) in str(caught.value)
    with pytest.raises(UnderlayUnsupportedError, match="does not isolate tenants"):
        switch_config(parse(document), LEAF)
    assert [os for os, system in SYSTEMS.items() if system.isolates] == ["cumulus_nvue"]


@pytest.mark.parametrize("command", ["deploy", "validate", "gate run"])
def test_nodes_that_do_not_reach_each_other_are_not_measured_together(command: str) -> None:
    site = tenants()
    with pytest.raises(NotDeployableError) as caught:
        require(site, ["node01", "node02", "node04"], command)
    assert (
        "nodes: they do not reach each other - Expected: nodes of one tenant Actual: no tenant, product, research. "
        "Take one tenant at a time, with --limit."
    ) in str(caught.value)
    require(site, ["node01", "node03"], command)
    require(site, ["node01", "node02", "node04"], "fabric")


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated switch of release 5.15."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    (tmp_path / "opt/hw").mkdir(parents=True)
    state: dict[str, Any] = build_switch_state(load_site("sim-spine"), LEAF)
    (tmp_path / "opt/hw/state.json").write_text(json.dumps(state))


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("name", [LEAF, SPINE])
def test_the_simulated_switch_takes_every_setting_and_the_same_document(name: str) -> None:
    commands = render_config(switch_config(tenants(), name))
    wanted = {tuple(shlex.split(line))[2:] for line in commands.splitlines()}
    for words in wanted:
        schema.check(words)
    assert nvue_document.load(document(expand_commands(commands))) == wanted


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("name", [LEAF, SPINE])
def test_frr_is_told_what_the_user_guide_shows(name: str) -> None:
    text = frrconf.text(settings(tenants(), name), name)
    golden = HERE / "cumulus_nvue" / f"{name}-tenants-frr.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.usefixtures("simulated")
@pytest.mark.skipif(shutil.which("vtysh") is None, reason="needs FRR's vtysh, which knows its own grammar")
@pytest.mark.parametrize("name", [LEAF, SPINE])
def test_frr_itself_knows_every_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "frr.conf"
    path.write_text(frrconf.text(settings(tenants(), name), name))
    done = subprocess.run(["vtysh", "-C", "-f", str(path)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    path.write_text(path.read_text().replace("advertise-all-vni", "advertise-every-vni").replace("l2vpn", "l3vpn"))
    assert subprocess.run(["vtysh", "-C", "-f", str(path)], check=False, capture_output=True).returncode != 0
