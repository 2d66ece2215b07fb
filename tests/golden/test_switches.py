"""Golden files: the text of every switch of the example rack. `GOLDENS=rewrite pytest tests/golden` rewrites them."""

from __future__ import annotations

import os
from dataclasses import replace
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.design.switches import QosUnsupportedError, switch_config
from rackready.drivers.switch.base import SwitchError
from rackready.drivers.switch.cumulus_nvue import render_config
from rackready.drivers.switch.nvue_text import expand_commands
from rackready.drivers.switch.registry import driver_for
from rackready.model.site import Qos, Site

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)


@pytest.mark.parametrize("name", ["leaf01", "leaf02"])
def test_switch_text_is_as_reviewed(site: Site, name: str) -> None:
    config = switch_config(site, name)
    text = render_config(config)
    golden = HERE / config.os / f"{name}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def with_options(site: Site) -> Site:
    """The site with ECN thresholds of its own and adaptive routing."""
    assert site.networks is not None
    qos = Qos.model_validate({"ecn": [{"speed": 400, "low": 500_000, "high": 2_000_000}]})
    underlay = site.networks.underlay.model_copy(update={"adaptive_routing": True})
    return site.model_copy(
        update={
            "fabric": site.fabric.model_copy(update={"qos": qos}),
            "networks": site.networks.model_copy(update={"underlay": underlay}),
        }
    )


@pytest.mark.parametrize("syntax", [True, False], ids=["since-5.15", "before-5.15"])
def test_adaptive_routing_and_ecn_by_speed_are_as_reviewed(two_tier: Site, syntax: bool) -> None:  # noqa: FBT001 - a case
    plain = set(render_config(switch_config(two_tier, "leaf-su001-01"), roce_state_syntax=syntax).splitlines())
    text = render_config(switch_config(with_options(two_tier), "leaf-su001-01"), roce_state_syntax=syntax)
    more = "".join(f"{line}\n" for line in text.splitlines() if line not in plain)
    assert plain <= set(text.splitlines())
    golden = HERE / "cumulus_nvue" / f"leaf-su001-01-options{'' if syntax else '-before-5.15'}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(more, encoding="utf-8")
    assert more == golden.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def two_tier() -> Site:
    return load_site("no-overlay", site_file=HERE / "sites/two_tier.yml", root=ROOT)


@pytest.mark.parametrize("syntax", [True, False], ids=["since-5.15", "before-5.15"])
@pytest.mark.parametrize("name", ["leaf-su001-01", "spine-002"])
def test_a_switch_of_two_tiers_is_as_reviewed(two_tier: Site, name: str, syntax: bool) -> None:  # noqa: FBT001 - a case
    text = render_config(switch_config(two_tier, name), roce_state_syntax=syntax)
    golden = HERE / "cumulus_nvue" / f"{name}{'' if syntax else '-before-5.15'}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_both_ends_of_a_numbered_trunk_have_one_subnet_and_name_each_other(two_tier: Site) -> None:
    networks = two_tier.networks
    assert networks is not None
    underlay = networks.underlay.model_copy(update={"links": "numbered", "pool": IPv4Network("10.31.0.0/22")})
    site = two_tier.model_copy(update={"networks": networks.model_copy(update={"underlay": underlay})})
    configs = {switch.name: switch_config(site, switch.name) for switch in site.switches}
    for config in configs.values():
        text = render_config(config)
        for port in config.ports:
            if not port.peer:
                continue
            far = next(one for one in configs[port.peer].ports if one.name == port.peer_port)
            assert (far.peer, far.peer_port) == (config.name, port.name)
            assert far.address == f"{port.peer_address}/31"
            assert IPv4Interface(port.address).network == IPv4Interface(far.address).network
            assert f"nv set interface {port.name} ipv4 address {port.address}\n" in text
            assert f"neighbor {port.peer_address} type numbered\n" in text


def test_a_leaf_announces_its_loopback_and_its_rails_and_a_spine_its_loopback_only(two_tier: Site) -> None:
    leaf, spine = switch_config(two_tier, "leaf-su002-01"), switch_config(two_tier, "spine-001")
    assert leaf.announced == ("10.30.0.2/32", *(f"192.168.{subnet}.0/24" for subnet in range(8, 16)))
    assert spine.announced == ("10.30.0.129/32",)
    assert spine.vlans == spine.gateways == ()


def test_text_is_the_same_every_time_and_in_port_order(site: Site) -> None:
    config = switch_config(site, "leaf01")
    text = render_config(config)
    assert text == render_config(config)
    ports = [line.split()[3] for line in text.splitlines() if line.endswith("type swp")]
    assert ports == [f"swp{number}" for number in range(1, 17)]


def test_older_syntax_differs_in_one_line_only(site: Site) -> None:
    config = switch_config(site, "leaf01")
    new, old = (set(render_config(config, roce_state_syntax=syntax).splitlines()) for syntax in (True, False))
    assert new - old == {"nv set qos roce state enabled"}
    assert old - new == {"nv set qos roce enable on"}


def test_a_description_cannot_run_a_command(site: Site) -> None:
    config = switch_config(site, "leaf01")
    port = replace(config.ports[0], description="x; reboot 'now'")
    line = next(line for line in render_config(replace(config, ports=(port,))).splitlines() if "description" in line)
    assert expand_commands(line) == {("nv", "set", "interface", "swp1", "description", "x; reboot 'now'")}


@pytest.mark.parametrize(
    ("qos", "text"),
    [
        (
            {"priority": 4},
            (
                "fabric.qos.priority: NVUE's lossless RoCE preset does not support this value - "
                "Expected: 3 Actual: 4. Use 3."
            ),
        ),
        (
            {"cnp_priority": 7},
            (
                "fabric.qos.cnp_priority: NVUE's lossless RoCE preset does not support this value - "
                "Expected: 6 Actual: 7. "
                "Use 6."
            ),
        ),
        (
            {"dscp": 34},
            (
                "fabric.qos.dscp: NVUE's lossless RoCE preset maps it to another priority - Expected: 24 to 31 "
                "Actual: 34. Choose one of them."
            ),
        ),
        (
            {"cnp_dscp": 4},
            (
                "fabric.qos.cnp_dscp: NVUE's lossless RoCE preset maps it to another priority - Expected: 48 to 55 "
                "Actual: 4. Choose one of them."
            ),
        ),
    ],
)
def test_what_the_switch_cannot_do_is_refused(site: Site, qos: dict[str, int], text: str) -> None:
    other = site.model_copy(update={"fabric": site.fabric.model_copy(update={"qos": Qos(**qos)})})
    with pytest.raises(QosUnsupportedError) as caught:
        switch_config(other, "leaf01")
    assert str(caught.value) == text


def test_an_unknown_operating_system_lists_those_known() -> None:
    with pytest.raises(SwitchError) as caught:
        driver_for("leaf01", "junos")
    assert str(caught.value) == (
        "leaf01: switch operating system 'junos' is not known - "
        "Expected: one of arista_eos, cisco_nxos, cumulus_nvue, sonic. "
        "Correct switches[].os in the site file."
    )
