"""The site file: every refusal by its exact text, all problems at once, overlays, strict YAML."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.facts import desired_digest, driver_version, node_facts, switch_facts
from rackready.design.overlays import merge
from rackready.design.site import load_site, parse_site
from rackready.design.wiring import cables
from rackready.model.base import expand_range
from rackready.model.near import among
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.model.supply import Figure
from rackready.profiles import loader
from rackready.profiles.loader import known

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def raw() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    return document


def parse(document: dict[str, Any]) -> Site:
    return parse_site(document, source="site.yml", base=Path("/base"))


def refusals(document: dict[str, Any]) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        parse(document)
    return [str(problem) for problem in caught.value.problems]


def test_simulated_site_is_valid_and_relative_paths_are_taken_from_the_project(raw: dict[str, Any]) -> None:
    site = parse(raw)
    assert len(site.nodes()) == 4
    assert site.access.private_key == Path("/base/.rackready/sim/keys/id_ed25519")
    assert site.node("node03").bmc.password.file == Path("/base/.rackready/sim/secrets/node03-bmc")


def test_four_different_mistakes_are_listed_in_one_run(raw: dict[str, Any]) -> None:
    nodes = raw["racks"][0]["nodes"]
    nodes[1]["colour"] = "red"
    nodes[2]["address"] = nodes[0]["address"]
    raw["links"][3]["ports"] = "swp65-swp68"
    raw["software"]["driver_branch"] = 470
    assert refusals(raw) == [
        "links[3].ports: leaf02 has no port swp65, swp66, swp67, swp68 - Expected: swp1 to swp64. Correct the port.",
        "racks[0].nodes[1].colour: unknown key. Correct its spelling or remove it; `rackready schema` lists the keys.",
        "racks[0].nodes[2].address: address 192.0.2.11 is already used by node node01. Give node node03 its own.",
        (
            "software.driver_branch: branch 470 cannot drive NVIDIA H100 80GB HBM3 (h100_sxm) - "
            "Expected: 525 or newer. "
            "Use another branch of hgx-r580-debian12."
        ),
    ]


def change(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        here: Any = document
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        for step in steps:
            here = here[step]
        here[last] = value

    return apply


REFUSED = [
    (
        change("racks.0.nodes.1.name", "node01"),
        "racks[0].nodes[1].name: node node01 is given twice. Give each its own name.",
    ),
    (
        change("racks.0.nodes.1.serial", "SIM-DGXH100-0001"),
        (
            "racks[0].nodes[1].serial: serial number SIM-DGXH100-0001 is already used by node node01. "
            "Give node node02 its own."
        ),
    ),
    (
        change("racks.0.nodes.1.bmc.address", "192.0.2.111"),
        (
            "racks[0].nodes[1].bmc.address: address 192.0.2.111 is already used by the BMC of node01. "
            "Give the BMC of node02 its own."
        ),
    ),
    (
        change("racks.0.nodes.1.platform", "dgx_h1000"),
        (
            "racks[0].nodes[1].platform: platform profile 'dgx_h1000' does not exist - "
            f"Expected: one of {among(known('platform'), 'dgx_h1000')}. Correct the id"
        ),
    ),
    (
        change("racks.0.nodes.1.unit", 2),
        "racks[0].nodes[1].unit: units 2-9 are partly occupied by node01. Move node02 to 8 U of free space.",
    ),
    (
        change("switches.0.model", "qm9700"),
        (
            "switches[0].os: rackready configures no qm9700 - Expected: no os, address and password "
            "Actual: cumulus_nvue. Remove all three: rackready reads its ports through the subnet."
        ),
    ),
    (
        change("switches.0.guid", "0xb83fd20300f00001"),
        (
            "switches[0].guid: sn5600 is no InfiniBand switch - Expected: no GUID Actual: 0xb83fd20300f00001. "
            "Remove the GUID, or correct the model."
        ),
    ),
    (
        change("switches.0.os", "arista_eos"),
        "switches[0].os: sn5600 does not run 'arista_eos' - Expected: one of cumulus_nvue, sonic. Correct it.",
    ),
    (change("links.0.rails", "1-3"), "links[0]: 3 rails, but 4 ports. List as many ports as rails."),
    (change("links.0.rails", "6-9"), "links[0].rails: node01 has no rail 9 - Expected: 1 to 8. Correct the rail."),
    (
        change("links.0.ports", "swp5-swp8"),
        (
            "links[2].ports: port swp5 of leaf01 is cabled already. "
            "Correct one of the two links: each port takes one cable."
        ),
    ),
    (change("links.0.node", "node09"), "links[0].node: no node is called node09. Correct the name."),
    (
        change("links.0.switch", "leaf02"),
        "links[2].switch: rail 1 ends on leaf01, leaf02, and no spine connects them. Cable each rail to one leaf.",
    ),
    (change("fabric.mtu", 9216 - 0), None),
    (
        change("fabric.switch_mtu", 1500),
        (
            "fabric.mtu: 9000 bytes on hosts is more than 1500 on switch ports: switches would drop large frames. "
            "Lower it, or raise fabric.switch_mtu."
        ),
    ),
    (change("fabric.rails.1.vlan", 901), "fabric.rails[1].vlan: VLAN 901 is given twice. Give each rail its own."),
    (
        change("fabric.rails.1.subnet", "192.168.1.128/25"),
        (
            "fabric.rails[1].subnet: subnet 192.168.1.128/25 overlaps the subnet of rail 1 (192.168.1.0/24). "
            "Give each rail its own subnet."
        ),
    ),
    (change("fabric.rails.1.subnet", "192.168.2.0/28"), None),
    (
        change("fabric.rails.1.subnet", "192.168.2.0/29"),
        (
            "fabric.rails[1].subnet: subnet 192.168.2.0/29 has room for 0 nodes, but the site has 4. "
            "Give the rail a larger subnet."
        ),
    ),
    (
        change("software.driver_branch", 590),
        (
            "software.driver_branch: branch 590 is not in software set hgx-r580-debian12 - Expected: one of 580. "
            "Choose one of these branches, or another set."
        ),
    ),
    (
        change("gates.skip", [{"gate": "node/gpu/none", "nodes": ["node01"], "reason": "not on this machine"}]),
        "gates.skip[0].gate: gate node/gpu/none is in no gate set",
    ),
    (
        change("racks.0.nodes.0.bmc.password", "hunter2"),
        (
            "racks[0].nodes[0].bmc.password: Expected: a mapping Actual: text. "
            "Write its place, never the secret itself: {file: FILE}, {env: VARIABLE}, or one of docs/howto/secrets.md."
        ),
    ),
    (
        change("racks.0.nodes.0.bmc.password", {}),
        "racks[0].nodes[0].bmc.password: give exactly one of file, env, sops and vault. Correct it.",
    ),
    (
        change("handover.kind", "lsf"),
        ("handover.kind: Expected: one of slurm, kubernetes, file, plugin, several Actual: lsf. Correct it."),
    ),
    (
        change("handover", {"controller": "10.0.0.1"}),
        "handover.kind: is required and missing. Add it.",
    ),
    (
        change("handover", {"kind": "kubernetes", "kubeconfig": "kc", "context": "prod", "controller": "10.0.0.1"}),
        ("handover.controller: unknown key. Correct its spelling or remove it; `rackready schema` lists the keys."),
    ),
]


@pytest.mark.parametrize(("mistake", "text"), REFUSED)
def test_refusal(raw: dict[str, Any], mistake: Callable[[dict[str, Any]], None], text: str | None) -> None:
    mistake(raw)
    if text is None:
        parse(raw)
    else:
        assert any(found.startswith(text) for found in refusals(raw)), refusals(raw)


def test_uncabled_rail_is_named(raw: dict[str, Any]) -> None:
    del raw["links"][1]
    assert refusals(raw) == ["racks[0].nodes[0]: rail 5, 6, 7, 8 of node01 has no cable. Add it to links."]


def test_paths_stay_true_when_items_before_are_pruned(raw: dict[str, Any]) -> None:
    raw["racks"][0]["nodes"][0]["unit"] = "top"
    raw["racks"][0]["nodes"][3]["serial"] = "SIM-DGXH100-0002"
    found = refusals(raw)
    assert (
        "racks[0].nodes[3].serial: serial number SIM-DGXH100-0002 is already used by node node02. "
        "Give node node04 its own." in found
    )
    assert any(text.startswith("racks[0].nodes[0].unit: Expected: a whole number") for text in found)
    assert len(found) == 2, "a pruned node must not make its links look wrong"


def test_broken_section_does_not_hide_what_is_wrong_elsewhere(raw: dict[str, Any]) -> None:
    del raw["handover"]["private_key"]
    raw["racks"][0]["nodes"][1]["address"] = "192.0.2.11"
    assert refusals(raw) == [
        "handover.private_key: is required and missing. Add it.",
        "racks[0].nodes[1].address: address 192.0.2.11 is already used by node node01. Give node node02 its own.",
    ]


QOS_REFUSALS = [
    (
        "fabric.qos.cnp_dscp: NVUE's lossless RoCE preset maps it to another priority - Expected: 48 to 55 "
        "Actual: 4. Choose one of them."
    ),
    "fabric.qos.cnp_priority: NVUE's lossless RoCE preset does not support this value - Expected: 6 Actual: 7. Use 6.",
    (
        "fabric.qos.dscp: NVUE's lossless RoCE preset maps it to another priority - Expected: 24 to 31 Actual: 34. "
        "Choose one of them."
    ),
    "fabric.qos.priority: NVUE's lossless RoCE preset does not support this value - Expected: 3 Actual: 4. Use 3.",
]


def test_unsupported_preset_values_are_reported_with_all_problems(raw: dict[str, Any]) -> None:
    raw["fabric"]["qos"] = {"dscp": 34, "priority": 4, "cnp_dscp": 4, "cnp_priority": 7}
    raw["racks"][0]["nodes"][1]["colour"] = "red"
    assert refusals(raw) == [
        *QOS_REFUSALS,
        "racks[0].nodes[1].colour: unknown key. Correct its spelling or remove it; `rackready schema` lists the keys.",
    ]


def test_a_mapping_within_the_preset_and_one_of_another_system_are_not_refused(raw: dict[str, Any]) -> None:
    raw["fabric"]["qos"] = {"dscp": 24, "cnp_dscp": 55}
    parse(raw)
    raw["fabric"]["qos"] = {"dscp": 34}
    for switch in raw["switches"]:
        switch["os"] = "sonic"
    assert [text for text in refusals(raw) if text.startswith("fabric.qos")] == []


def test_thresholds_by_speed_are_refused_where_the_driver_does_not_set_them(raw: dict[str, Any]) -> None:
    raw["fabric"]["qos"] = {"ecn": [{"speed": 400, "low": 150_000, "high": 1_500_000}]}
    parse(raw)
    raw["switches"][0]["os"] = "arista_eos"
    assert [text for text in refusals(raw) if text.startswith("fabric.qos")] == [
        (
            "fabric.qos.ecn: rackready gives all ports of arista_eos the same ECN thresholds - "
            "Expected: none in the site Actual: those of 400 Gb/s. Leave it out."
        )
    ]


@pytest.mark.parametrize(
    ("ecn", "said"),
    [
        ([{"speed": 400, "low": 2, "high": 1}], "low (2) must not be above high (1)"),
        ([{"speed": 400, "low": 1, "high": 2}] * 2, "ecn has speed 400 twice"),
        ([{"speed": 500, "low": 1, "high": 2}], "fabric.qos.ecn[0].speed"),
    ],
)
def test_thresholds_that_cannot_be_are_refused(raw: dict[str, Any], ecn: list[dict[str, int]], said: str) -> None:
    raw["fabric"]["qos"] = {"ecn": ecn}
    assert said in " ".join(refusals(raw))


@pytest.mark.parametrize("section", ["fabric", "racks", "software", "gates", "schema", "access", "handover"])
def test_missing_section_is_reported(raw: dict[str, Any], section: str) -> None:
    del raw[section]
    assert f"{section}: is required and missing. Add it." in refusals(raw)


@pytest.mark.parametrize("junk", [[], "text", 7, None])
def test_document_that_is_no_mapping(junk: object) -> None:
    with pytest.raises(SiteInvalidError, match="Expected: a mapping"):
        parse_site(junk, source="site.yml", base=Path("/"))


def test_key_given_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    site = tmp_path / "site.yml"
    site.write_text("name: a\nname: b\n", encoding="utf-8")
    with pytest.raises(
        SiteInvalidError,
        match=r"name: key 'name' is given twice - Expected: once Actual: lines 1 and 2\. Remove one of the two lines\.",
    ):
        load_site("x", site_file=site, root=tmp_path)


def test_overlay_merges_named_lists_by_name(raw: dict[str, Any]) -> None:
    overlay = {
        "racks": [{"name": "rack01", "nodes": [{"name": "node03", "address": "198.51.100.3"}]}],
        "links": [{"x": 1}],
    }
    before = copy.deepcopy(raw)
    merged = merge(raw, overlay)
    assert merged["racks"][0]["nodes"][2]["address"] == "198.51.100.3"
    assert merged["racks"][0]["nodes"][2]["serial"] == before["racks"][0]["nodes"][2]["serial"]
    assert merged["racks"][0]["nodes"][1] == before["racks"][0]["nodes"][1]
    assert merged["links"] == [{"x": 1}], "lists without names are replaced"
    assert raw == before, "merge changes neither side"


def test_overlay_file_is_read_by_the_loader(tmp_path: Path, raw: dict[str, Any]) -> None:
    (tmp_path / "inventories/lab").mkdir(parents=True)
    (tmp_path / "inventories/lab/site.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    (tmp_path / ".rackready/overlays").mkdir(parents=True)
    (tmp_path / ".rackready/overlays/lab.yml").write_text(
        "software: {mirror: {url: 'http://198.51.100.9:80'}}\n", encoding="utf-8"
    )
    assert load_site("lab", root=tmp_path).software.mirror.url == "http://198.51.100.9:80"


@pytest.mark.parametrize("user", ["carol:s3cret@", "carol@", ":s3@cret@"])
def test_credentials_in_the_mirror_s_url_are_refused_and_not_shown(raw: dict[str, Any], user: str) -> None:
    raw["software"]["mirror"]["url"] = f"http://{user}192.0.2.2:8080/a"
    words = "has a user or password - Expected: a URL without credentials: put them in apt's auth.conf on the nodes"
    assert refusals(raw) == [f"software.mirror.url: {words} Actual: 'http://***@192.0.2.2:8080/a'. Correct it."]
    raw["software"]["mirror"]["url"] = f"ftp://{user}192.0.2.2"
    words = r"Expected: text that matches ^(https?|file)://\S+$"
    assert refusals(raw) == [f"software.mirror.url: {words} Actual: 'ftp://***@192.0.2.2'. Correct it."]


def test_mirror_s_url_may_hold_an_at_sign_in_its_path(raw: dict[str, Any]) -> None:
    raw["software"]["mirror"]["url"] = "http://192.0.2.2:8080/a@b"
    assert parse(raw).software.mirror.url == "http://192.0.2.2:8080/a@b"


def test_facts_of_a_node_and_a_switch(raw: dict[str, Any]) -> None:
    site = parse(raw)
    facts = node_facts(site, "node03")
    assert facts.driver == driver_version(site) == "580.173.02"
    assert (facts.nics[2].address, facts.nics[2].switch, facts.nics[2].port) == ("192.168.3.13", "leaf01", "swp11")
    assert len(cables(site)) == 32
    leaf = switch_facts(site, "leaf02")
    assert [port.port for port in leaf.ports] == [f"swp{number}" for number in range(1, 17)]
    assert leaf.vlans == (905, 906, 907, 908)


def test_digest_follows_what_is_wanted_and_not_how_it_is_reached(raw: dict[str, Any]) -> None:
    base = desired_digest(parse(raw), "node01")
    moved = copy.deepcopy(raw)
    moved["software"]["mirror"]["url"] = "http://198.51.100.9"
    moved["racks"][0]["nodes"][0]["address"] = "198.51.100.1"
    assert desired_digest(parse(moved), "node01") == base
    moved["fabric"]["qos"] = {"dscp": 24}
    assert desired_digest(parse(moved), "node01") != base


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("swp1-swp3", ["swp1", "swp2", "swp3"]),
        ("swp7", ["swp7"]),
        ("2-3", ["2", "3"]),
        ("Ethernet1/1-Ethernet1/3", ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3"]),
        ("Ethernet9/1-Ethernet10/1", ["Ethernet9/1", "Ethernet10/1"]),
        ("Ethernet1/1/1-Ethernet1/1/2", ["Ethernet1/1/1", "Ethernet1/1/2"]),
        ("Ethernet4/5", ["Ethernet4/5"]),
    ],
)
def test_expand_range(text: str, names: list[str]) -> None:
    assert expand_range(text) == names


@pytest.mark.parametrize(
    "text", ["", "swp", "swp3-swp1", "swp1-eth3", "1,2", "Ethernet3/1-Ethernet1/1", "Ethernet2/5-Ethernet1/1"]
)
def test_expand_range_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a range|is a descending range"):
        expand_range(text)


@pytest.mark.parametrize(("field", "same"), [("weight", True), ("max_power", True), ("fed", True), ("gpu_pci", False)])
def test_digest_is_of_what_is_measured_not_of_what_is_only_planned_with(
    raw: dict[str, Any], monkeypatch: pytest.MonkeyPatch, field: str, *, same: bool
) -> None:
    base = desired_digest(parse(raw), "node01")
    profile = loader.platform("dgx_h100")
    others = {"gpu_pci": profile.gpu_pci[::-1], "fed": "either"}
    better: Any = others[field] if field in others else Figure(value=1.0, unit="x", source="a better source")
    changed = profile.model_copy(update={field: better})
    monkeypatch.setattr(loader, "platform", lambda _wanted: changed)
    assert (desired_digest(parse(raw), "node01") == base) is same
