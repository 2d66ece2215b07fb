"""Sites that can be planned but not deployed are refused with every reason before any change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design import adaptive_routing
from rackready.design.deployable import NotDeployableError, require
from rackready.design.own_profiles import read_own
from rackready.design.site import load_site, parse_site
from rackready.design.switch_systems import SYSTEMS
from rackready.design.switches import UnderlayUnsupportedError, switch_config
from rackready.design.yaml import read_yaml
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader
from rackready.stacks.args import rack_args
from tests.unit.design.virtual_sites import EMULATED, ONE, document
from tests.unit.design.virtual_sites import site as virtual_site
from tests.unit.design.written import example, parse

ROOT = Path(__file__).resolve().parents[3]
IMPORT = "Import the vendor's manifest (`rackready import manifest FILE.csv`), or exclude them with --limit."


def lab(*serials: str) -> Site:
    nodes = [{"name": f"node{number:02d}", "serial": serial} for number, serial in enumerate(serials, 1)]
    return parse(example("lab-4-nodes"), {"racks": [{"name": "rack01", "nodes": nodes}]})


def reasons(site: Site, nodes: list[str], command: str) -> list[str]:
    with pytest.raises(NotDeployableError) as caught:
        require(site, nodes, command)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"rackready {command}: site {site.name} can be planned but not deployed; nothing was changed."
    assert lines[-1] == "`rackready plan` works on it."
    return [line.strip() for line in lines[1:-1]]


def everything(site: Site) -> list[str]:
    return [node.name for node in site.nodes()]


def test_known_nodes_of_a_leaf_only_site_are_deployable() -> None:
    site = lab("S1", "S2")
    require(site, ["node01", "node02"], "deploy")
    assert [node.node for node in rack_args(site, "lab", "rack01").nodes] == ["node01", "node02"]


def test_nodes_without_serial_number_are_refused_and_can_be_left_out() -> None:
    site = lab("S1", "S2")
    assert reasons(site, everything(site), "deploy") == [
        f"node03, node04: serial number - Expected: known Actual: not given yet. {IMPORT}"
    ]


def test_bmc_is_asked_for_by_what_talks_to_it_alone() -> None:
    document = example("lab-4-nodes")
    document["templates"]["nodes"]["h100"] = {"platform": "dgx_h100", "serial": "{name}"}
    del document["racks"][0]["nodes"][0]["bmc"]
    site = parse(document)
    require(site, everything(site), "install")
    assert reasons(site, everything(site), "provision") == [
        f"node01, node02, node03, node04: address of the BMC - Expected: known Actual: not given yet. {IMPORT}",
        f"node01, node02, node03, node04: password of the BMC - Expected: known Actual: not given yet. {IMPORT}",
    ]


def test_infiniband_without_a_subnet_manager_is_planned_only() -> None:
    site = parse(example("h100-1su-infiniband"))
    assert reasons(site, ["a01-n1"], "deploy") == [
        (
            "fabric.infiniband: not given - Expected: a subnet manager. "
            "Add fabric.infiniband with its subnet_manager: opensm with nodes, ufm, or external."
        ),
        f"a01-n1: serial number - Expected: known Actual: not given yet. {IMPORT}",
    ]


def two_tier() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "tests/golden/sites/two_tier.yml").read_text(encoding="utf-8"))
    return document


def test_a_topology_of_switches_with_logins_is_deployable() -> None:
    require(parse(two_tier()), ["node01"], "fabric")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda site: site["switches"].pop(),
            (
                "spine-002: access to the switch - Expected: known. "
                "Add each to switches: with its system, address and password."
            ),
        ),
        (
            lambda site: site["networks"].pop("loopbacks"),
            "networks.loopbacks: none - Expected: a pool. Give it a pool: BGP needs a router id.",
        ),
        (
            lambda site: site.update(
                tenants=[{"name": "research", "nodes": ["node01"], "vrf": "research", "vni": 100}]
            ),
            (
                "tenant research: no vlan - Expected: vlan, vrf and vni. "
                "Give all three, or none: nodes are then not isolated."
            ),
        ),
        (
            lambda site: (site["topology"].update(planes=2), site["networks"]["compute"].update(planes=2)),
            (
                "topology.planes_by: port - Expected: rail. "
                "rackready configures one port per NIC. Plan by rail, or one plane."
            ),
        ),
    ],
    ids=["no login", "no loopbacks", "tenants", "planes"],
)
def test_what_a_topology_lacks_is_refused(change: Callable[[dict[str, Any]], object], said: str) -> None:
    document = two_tier()
    change(document)
    assert said in reasons(parse(document), [], "fabric")


_ECMP = "Set it to false: the switches then choose a path for each flow (ECMP)."


def _adaptive(os: str, model: str) -> Site:
    document = two_tier()
    document["networks"]["underlay"] = {"links": "numbered", "pool": "10.31.0.0/22", "adaptive_routing": True}
    for tier in ("leaf", "spine"):
        document["topology"][tier]["model"] = model
    for switch in document["switches"]:
        switch.update(os=os, model=model)
    return parse(document)


def test_adaptive_routing_between_split_ports_of_spectrum_4_is_deployable() -> None:
    require(_adaptive("cumulus_nvue", "sn5600"), ["node01"], "fabric")


def test_adaptive_routing_is_refused_on_another_system() -> None:
    site = _adaptive("sonic", "sn5600")
    said = f"networks.underlay.adaptive_routing: rackready does not configure it on sonic. {_ECMP}"
    assert reasons(site, [], "fabric") == [said]
    with pytest.raises(UnderlayUnsupportedError, match="does not configure it on sonic"):
        switch_config(site, "spine-001")


def test_adaptive_routing_is_refused_on_another_chip_and_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    site = _adaptive("cumulus_nvue", "sn5600")
    monkeypatch.setattr(adaptive_routing, "compute_rate", lambda _site: 800)
    said = (
        "networks.underlay.adaptive_routing: Spectrum-4 does not route adaptively over links of this speed - "
        "Expected: 200 or 400 Gb/s Actual: 800 Gb/s. "
        "Split the ports between switches to 200 or 400 Gb/s, or set it to false."
    )
    assert reasons(site, [], "fabric") == [said]
    other = loader.switch("sn5600").model_copy(update={"asic": None})
    monkeypatch.setattr(adaptive_routing.loader, "switch", lambda _name: other)
    said = (
        "networks.underlay.adaptive_routing: sn5600 cannot route adaptively - "
        f"Expected: a switch with Spectrum-4 Actual: the profile names no chip. {_ECMP}"
    )
    assert reasons(site, [], "fabric") == [said]


def test_split_ports_are_deployable_where_the_switch_system_splits_them() -> None:
    document = example("lab-4-nodes")
    document["switches"][0]["ports"] = [{"ports": "swp33", "breakout": 2}]
    require(parse(document), [], "fabric")


def test_split_ports_are_refused_where_the_switch_system_does_not_split_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "cumulus_nvue", replace(SYSTEMS["cumulus_nvue"], routes=False))
    document = example("lab-4-nodes")
    document["switches"][0]["ports"] = [{"ports": "swp33", "breakout": 2}]
    assert reasons(parse(document), [], "fabric") == [
        (
            "leaf01, leaf02: breakout, speed, FEC or routing - "
            "Expected: a switch system that rackready configures them on Actual: cumulus_nvue. "
            "Split its ports and set their speed by hand, and leave them out of the site file."
        )
    ]


@pytest.mark.parametrize(
    ("infiniband", "reason"),
    [
        (
            {"subnet_manager": "ufm", "ufm": {"url": "https://192.0.2.7", "token": {"env": "UFM_TOKEN"}}},
            (
                "fabric.infiniband.ufm: leaf01, leaf02 - Expected: one subnet. "
                "One UFM manages one subnet. Join the leafs by a topology of one plane, or set external."
            ),
        ),
        (
            {"subnet_manager": "opensm", "nodes": ["node09"]},
            "fabric.infiniband.nodes: node09 - Expected: nodes of the site. Correct the name.",
        ),
        ({"subnet_manager": "external"}, ""),
        ({"subnet_manager": "opensm", "nodes": ["node01"]}, ""),
    ],
)
def test_an_infiniband_site_needs_a_subnet_manager_that_rackready_can_run_or_check(
    infiniband: dict[str, object], reason: str
) -> None:
    document = read_yaml(ROOT / "inventories/sim-ib/site.yml")
    document["fabric"]["infiniband"] = infiniband
    site = parse_site(document, source="sim-ib", base=ROOT, own=read_own(ROOT / "inventories/sim-ib/profiles", ROOT))
    if not reason:
        require(site, ["node01"], "deploy")
        return
    assert reasons(site, ["node01"], "deploy") == [reason]


def test_virtual_nodes_and_unpublished_platforms_are_planned_only() -> None:
    found = reasons(parse(example("mixed-metal-virtual")), ["vm-a03", "vm-a04"], "install")
    assert found[0] == (
        "vm-a03, vm-a04: virtual - Expected: what they are made of. "
        "Add `virtual` to each (docs/howto/virtual.md), or exclude them with --limit."
    )
    assert found[1] == (
        "profiles/platform/sys_521ge_l40s.yml: the PCI addresses of its GPUs - Expected: known "
        "Actual: not published. Read them from a machine that runs: `rackready profile learn vm-a03 --write`."
    )


def test_virtual_nodes_need_a_described_hypervisor_and_whole_gpus() -> None:
    made = document({**EMULATED, "fabric_manager": "vgpu"})
    del made["hypervisors"]
    found = reasons(parse_site(made, source="site.yml", base=ROOT), ["guest01"], "provision")
    assert found == [
        (
            "train-1: hypervisors - Expected: an entry Actual: none. "
            "Add each to hypervisors with its NUMA nodes, or exclude its virtual nodes with --limit."
        ),
        (
            "guest01: fabric_manager - Expected: full or shared Actual: vgpu. "
            "rackready makes no vGPU devices. Pass whole GPUs, or exclude them with --limit."
        ),
    ]
    require(virtual_site(ONE), ["guest01"], "provision")
    assert reasons(virtual_site(ONE), ["guest01"], "deploy")[0] == (
        "guest01: kind virtual - Expected: metal. Run `rackready provision` for them, then the later phases "
        "one by one, or exclude them with --limit."
    )


def test_many_nodes_are_counted() -> None:
    site = parse(example("b200-4su-roce"))
    assert reasons(site, everything(site), "validate")[-1].startswith(
        "a01-n1, a01-n2, a01-n3, a01-n4, a02-n1 and 123 more: serial number"
    )


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc", "..", ".hidden", ""])
def test_environment_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RackreadyError) as caught:
        EnvPaths(tmp_path, name)
    expected = (
        f"--env {name} - Expected: a plain name such as prod (letters, digits, - _ .) Actual: {name!r}. "
        "Give the name of a folder in inventories/."
    )
    assert str(caught.value) == expected
    with pytest.raises(RackreadyError, match="Expected: a plain name"):
        load_site(name, root=tmp_path)
