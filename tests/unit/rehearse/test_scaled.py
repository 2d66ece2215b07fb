"""A site scaled down: what stays, what is replaced, what is listed, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.deployable import require
from rackready.design.wiring import topology_fabric
from rackready.model.site import Site
from rackready_sim import hardware, ib_hardware, overlay
from rackready_sim.rehearse.scaled import RehearsalError, Scaled, scaled
from rackready_sim.store import Store
from tests.unit.rehearse.small import (
    EXAMPLES,
    SITES,
    SMALL,
    STAND_INS,
    changed,
    own_profiles,
    parsed,
    plan,
    rehearsal,
    site,
)


@pytest.mark.parametrize("name", SMALL)
def test_rehearsal_can_be_built_and_deployed(name: str, tmp_path: Path) -> None:
    """Its site file is valid, deploy takes it, and the simulated rack has hardware for every machine of it."""
    small = rehearsal(name)
    made = parsed(small, own_profiles(small, tmp_path, SITES[name]))
    require(made, small.nodes, "deploy")
    rack = plan(made)
    assert [item.name for item in rack.of("node")] == list(small.nodes)
    assert all(hardware.build_state(made, item.name)["nics"] for item in rack.of("node"))
    assert all(hardware.build_switch_state(made, item.name)["cables"] for item in rack.of("switch"))
    assert not rack.of("fabric") or len(ib_hardware.build_state(made)["hcas"]) == 8 * len(small.nodes)
    assert len(rack.of("switch")) <= 10


@pytest.mark.parametrize("name", SMALL)
def test_what_the_site_wants_stays(name: str, tmp_path: Path) -> None:
    here = site(name)
    small = scaled(here, most=4, stand_ins=STAND_INS)
    made = parsed(small, own_profiles(small, tmp_path, SITES[name]))
    assert (made.fabric.kind, made.fabric.mtu, made.fabric.qos) == (here.fabric.kind, here.fabric.mtu, here.fabric.qos)
    assert (made.gates.set, made.software.set) == (here.gates.set, here.software.set)
    assert made.handover.kind == here.handover.kind
    assert made.campaign == here.campaign
    assert made.access.user == here.access.user
    assert {switch.os for switch in here.switches} <= {switch.os for switch in made.switches} | {""}
    for node in made.nodes():
        platform = here.node(node.name).platform
        assert node.platform.removesuffix("_hdr") == STAND_INS.get(platform, platform).removesuffix("_hdr")


def test_leaf_and_spine_stay_in_both_kinds_of_topology(tmp_path: Path) -> None:
    rails = rehearsal("b200-4su-roce")
    made = parsed(rails, own_profiles(rails, tmp_path / "a", SITES["b200-4su-roce"]))
    assert [switch.name[:5] for switch in made.switches] == ["leaf-"] * 8 + ["spine"] * 2
    assert len(plan(made).trunks) == 32, "each leaf has as many cables up as nodes below"
    units = rehearsal("sim-spine")
    made = parsed(units, own_profiles(units, tmp_path / "b", SITES["sim-spine"]))
    assert [switch.name for switch in made.switches] == ["leaf-su001-01", "leaf-su002-01", "spine-001", "spine-002"]
    assert [rack.su for rack in made.racks] == [1, 2]


def notes(small: Scaled) -> dict[str, tuple[str, str]]:
    return {note.what: (note.here, note.there) for note in small.not_covered}


def test_list_of_leaf_and_spine() -> None:
    found = notes(rehearsal("b200-4su-roce"))
    assert found["nodes of dgx_b200, hgx-r580-debian12"] == ("128", "4")
    assert found["racks"] == ("36", "2 (a01, a09)")
    assert found["platform dgx_b200"] == ("dgx_b200", "dgx_h100")
    assert found["switches"] == ("40 in 4 units", "10")
    assert found["switch system"] == ("not named in the site file", "cumulus_nvue")
    assert found["other fabrics"] == ("in-band, storage, oob, oob-net", "not rehearsed")
    assert found["tenants"] == ("research, product", "not rehearsed")
    assert {"hardware", "scale", "firmware", "package sources", "NIC plans"} <= found.keys()


def test_list_of_infiniband() -> None:
    found = notes(rehearsal("h100-1su-infiniband"))
    assert found["link rate of dgx_h100"] == ("400 Gb/s", "200 Gb/s")
    assert found["switches"] == ("12", "2")
    assert found["subnet manager"] == ("not named in the site file", "opensm on nodes")
    refused = [note.here for note in rehearsal("h100-1su-infiniband").not_covered if note.what == "the site file"]
    assert refused[0].startswith("fabric.infiniband: not given - Expected: a subnet manager."), "deploy refuses it, too"


def test_list_of_mixed_metal_and_virtual() -> None:
    found = notes(rehearsal("mixed-metal-virtual"))
    assert found["virtual nodes"] == ("8", "not rehearsed")
    assert found["platform sys_521ge_l40s"] == ("sys_521ge_l40s", "not rehearsed")


def ufm(document: dict[str, Any]) -> None:
    document["fabric"]["infiniband"] = {
        "subnet_manager": "ufm",
        "ufm": {"url": "https://ufm.example.net", "token": {"env": "UFM_TOKEN"}},
    }


def test_services_of_others_are_listed_and_not_asked() -> None:
    found = notes(scaled(changed("h100-1su-infiniband", ufm), most=4))
    assert found["UFM"] == ("https://ufm.example.net", "not rehearsed")
    assert found["subnet manager"] == ("ufm", "opensm on nodes")
    small = scaled(changed("lab-4-nodes", jump), most=4)
    assert notes(small)["jump host"] == ("bastion.example.net", "not rehearsed")
    assert small.document["access"] == {"user": "root", "private_key": ".rackready/sim/keys/id_ed25519"}


def test_a_site_of_several_schedulers_says_which_one_is_rehearsed() -> None:
    both = EXAMPLES / "slurm-and-kubernetes.yml"
    several = yaml.safe_load(both.read_text(encoding="utf-8"))["handover"]["parts"]
    nodes = [node.name for node in site("lab-4-nodes").nodes()]
    slurm, kubernetes = several[0] | {"nodes": nodes[:2]}, several[1] | {"nodes": nodes[2:]}

    def parts(document: dict[str, Any]) -> None:
        document["handover"] = {"kind": "several", "parts": [slurm, kubernetes]}

    whole = scaled(changed("lab-4-nodes", parts), most=4)
    assert whole.document["handover"]["kind"] == "file"
    assert [here for what, (here, there) in notes(whole).items() if (what, there) == ("schedulers", "a file")]
    one = scaled(changed("lab-4-nodes", parts), most=4, limit=nodes[:2])
    assert one.document["handover"]["kind"] == "slurm"
    assert [there for what, (_, there) in notes(one).items() if what == "parts of handover"] == ["not rehearsed"]


def jump(document: dict[str, Any]) -> None:
    document["access"]["proxy_jump"] = {"host": "bastion.example.net", "user": "hop"}


def same(document: dict[str, Any]) -> None:
    del document


def eos(document: dict[str, Any]) -> None:
    document["fabric"]["switch_mtu"] = 9214
    document["switches"][0] |= {"os": "arista_eos", "model": "dcs_7060x6_64pe"}
    document["links"][0]["ports"] = "Ethernet1/1-Ethernet16/1"
    document["links"][1]["ports"] = "Ethernet1/1-Ethernet16/1"


def el9(document: dict[str, Any]) -> None:
    document["software"]["set"] = "hgx-r580-el9"


NO_NODE = (
    "site b200-4su: nodes - Expected: one that can be rehearsed Actual: platform dgx_b200: not published: the PCI "
    "addresses of its GPUs, the device names of its compute NICs; --stand-in dgx_b200=dgx_h100 rehearses with that in "
    "its place. Give --stand-in PLATFORM=dgx_h100, or choose other nodes with --limit."
)
NO_SYSTEM = (
    "switches: switch system - Expected: cumulus_nvue Actual: none named: the site file has no access to its switches. "
    "Give --stand-in switches=cumulus_nvue to rehearse with that system in its place."
)
OTHER_SYSTEM = (
    "switches: switch system - Expected: cumulus_nvue or sonic Actual: arista_eos. Give --stand-in "
    "arista_eos=cumulus_nvue to rehearse with that system in its place."
)
VIRTUAL = (
    "site mixed: nodes - Expected: one that can be rehearsed Actual: virtual nodes: the simulated rack has no "
    "hypervisor; docs/howto/virtual.md says how to have them made. Give --stand-in PLATFORM=dgx_h100, or choose other "
    "nodes with --limit."
)
NO_ROOM = (
    "this machine: nodes that it holds - Expected: at least 1 Actual: 0. Free memory, or rehearse on a larger machine: "
    "2 GiB, and 1 GiB and half a core for each node."
)
NO_IMAGE = (
    "version set hgx-r580-el9: operating system at infiniband switches - Expected: one of debian12, debian13, "
    "ubuntu2204, ubuntu2404 Actual: el9. Choose other nodes with --limit."
)
REFUSED: list[tuple[str, Callable[[dict[str, Any]], None], dict[str, Any], str]] = [
    ("b200-4su-roce", same, {}, NO_NODE),
    ("b200-4su-roce", same, {"stand_ins": {"dgx_b200": "dgx_h100"}}, NO_SYSTEM),
    ("lab-4-nodes", eos, {}, OTHER_SYSTEM),
    ("mixed-metal-virtual", same, {"limit": ["vm-a03"]}, VIRTUAL),
    ("lab-4-nodes", same, {"most": 0}, NO_ROOM),
    ("h100-1su-infiniband", el9, {}, NO_IMAGE),
]


@pytest.mark.parametrize(("name", "change", "options", "expected"), REFUSED)
def test_refused(name: str, change: Callable[[dict[str, Any]], None], options: dict[str, Any], expected: str) -> None:
    with pytest.raises(RehearsalError) as caught:
        scaled(changed(name, change), **{"most": 4, **options})
    (message,) = caught.value.messages
    assert str(message) == expected
    assert str(caught.value).startswith("rackready rehearse: site ")


def test_stand_in_of_a_switch_system_takes_its_ports_in_order(tmp_path: Path) -> None:
    small = scaled(changed("lab-4-nodes", eos), most=4, stand_ins={"arista_eos": "cumulus_nvue"})
    assert notes(small)["switch system arista_eos"] == ("arista_eos", "cumulus_nvue")
    ports = [(link["node"], link["switch"], link["ports"]) for link in small.document["links"]]
    assert [item for item in ports if item[1] == "leaf01"] == [
        ("node01", "leaf01", "swp1-swp4"),
        ("node02", "leaf01", "swp5-swp8"),
        ("node03", "leaf01", "swp9-swp12"),
        ("node04", "leaf01", "swp13-swp16"),
    ]
    made: Site = parsed(small, own_profiles(small, tmp_path, SITES["lab-4-nodes"]))
    require(made, small.nodes, "deploy")


def skip(document: dict[str, Any]) -> None:
    reason = "fan tray on order, ticket 1234"
    document["gates"]["skip"] = [
        {"gate": "node/gpu/validation/dcgm-r3", "nodes": ["node01", "node04"], "reason": reason},
        {"gate": "node/gpu/validation/dcgm-r2", "nodes": ["node02"], "reason": reason},
    ]


def test_declared_skips_stay_for_nodes_that_stay() -> None:
    small = scaled(changed("lab-4-nodes", skip), most=4, limit=["node01", "node03", "node04"])
    assert small.document["gates"]["skip"] == [
        {
            "gate": "node/gpu/validation/dcgm-r3",
            "nodes": ["node01", "node04"],
            "reason": "fan tray on order, ticket 1234",
        }
    ]
    assert notes(small)["gate node/gpu/validation/dcgm-r3"] == ("a declared skip", "the same skip")


def test_two_nodes_skip_incast_with_its_reason() -> None:
    small = rehearsal("lab-4-nodes", limit=["node01", "node02"])
    assert [item["gate"] for item in small.document["gates"]["skip"]] == ["cluster/fabric/stress/incast"]
    assert notes(small)["gate cluster/fabric/stress/incast"] == ("judged", "a declared skip")


def test_overlay_of_the_rack_is_merged_by_the_normal_loader(tmp_path: Path) -> None:
    small = rehearsal("example")
    made = parsed(small, own_profiles(small, tmp_path / "own", SITES["example"]))
    store = Store(tmp_path)
    document = overlay.build(made, plan(made), store)
    assert [node["name"] for rack in document["racks"] for node in rack["nodes"]] == list(small.nodes)
    assert {item["name"] for item in document["switches"]} == {item["name"] for item in small.document["switches"]}


@pytest.mark.parametrize("name", ["b200-4su-roce", "sim-spine", "h100-1su-infiniband"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_number_of_nodes_has_a_whole_fabric(name: str, count: int, tmp_path: Path) -> None:
    small = rehearsal(name, most=count)
    made = parsed(small, own_profiles(small, tmp_path, SITES[name]))
    require(made, small.nodes, "deploy")
    named = {switch.name for switch in topology_fabric(made).switches}
    assert made.topology is None or named == {switch.name for switch in made.switches}


def named_addresses(document: dict[str, Any]) -> None:
    document["fabric"]["nccl"] = {"settings": {"NCCL_IB_TIMEOUT": 22, "NCCL_IB_ADDR_RANGE": "192.168.0.0/16"}}


def test_settings_that_name_addresses_of_the_site_are_left_out_and_listed() -> None:
    small = scaled(changed("lab-4-nodes", named_addresses), most=4)
    assert small.document["fabric"]["nccl"] == {"settings": {"NCCL_IB_TIMEOUT": 22}}
    assert notes(small)["NCCL_IB_ADDR_RANGE"] == ("set", "not rehearsed")
