"""Golden files: the CONFIG_DB lines of SONiC switches, and what stops a switch that day 0 left unready.

The same lines, in the tables of a new SN5600, passed yanglint with SONiC's own models (see docs/howto/sonic.md).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.design.ecn import EcnThresholds
from rackready.design.site import load_site
from rackready.design.switches import Breakout, Gateway, PortConfig, Routing, SwitchConfig, switch_config
from rackready.drivers.switch.base import SwitchError
from rackready.drivers.switch.sonic import render_config
from rackready.drivers.switch.sonic_refusals import refuse
from rackready.drivers.switch.sonic_text import Config

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def have(**tables: Any) -> Config:
    """Return what a new switch has."""
    ports = {f"Ethernet{8 * place}": {"lanes": str(8 * place), "speed": "800000"} for place in range(64)}
    device = {"platform": "x86_64-nvidia_sn5600-r0", "buffer_model": "dynamic", "type": "ToRRouter"}
    return {"PORT": ports, "DEVICE_METADATA": {"localhost": device}, **tables}


def _leaf() -> SwitchConfig:
    return switch_config(
        load_site("no-overlay", site_file=ROOT / "inventories/sim-sonic/site.yml", root=ROOT), "leaf01"
    )


def _trunk(port: str, peer: str, number: int, **changes: Any) -> PortConfig:
    known: dict[str, Any] = {"peer": peer, "peer_port": "Ethernet0", "peer_asn": 65200 + number}
    addresses = {"address": f"10.1.{number}.0/31", "peer_address": f"10.1.{number}.1"}
    return PortConfig(
        port, "", "", 0, None, 9216, f"{peer} Ethernet0 (rackready)", 800, "rs", **(known | addresses | changes)
    )


def _routed_leaf() -> SwitchConfig:
    leaf = _leaf()
    nodes = tuple(replace(port, speed=400, fec="rs") for port in leaf.ports[:2])
    trunks = (_trunk("Ethernet256", "spine01", 1), _trunk("Ethernet264", "spine02", 2))
    return replace(
        leaf,
        ports=(*nodes, *trunks),
        vlans=(901, 902),
        gateways=(Gateway(901, "192.168.1.1/24"),),
        routing=Routing(65101, "10.0.0.1"),
    )


def _spine() -> SwitchConfig:
    trunks = (_trunk("Ethernet0", "leaf01", 1), _trunk("Ethernet8", "leaf02", 2))
    return replace(_leaf(), name="spine01", vlans=(), ports=trunks, routing=Routing(65201, "10.0.0.2"))


SWITCHES = {"leaf01": _leaf, "routed_leaf": _routed_leaf, "spine01": _spine}


@pytest.mark.parametrize("name", SWITCHES)
def test_lines_are_as_reviewed(name: str) -> None:
    text = render_config(SWITCHES[name](), have())
    golden = HERE / "sonic" / f"{name}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SWITCHES)
def test_a_new_switch_is_accepted(name: str) -> None:
    refuse(SWITCHES[name](), have(), lambda _port: [])


def test_pools_are_never_written() -> None:
    assert "BUFFER_POOL" not in render_config(_routed_leaf(), have())


def test_lengths_and_groups_of_the_switch_stay() -> None:
    there = have(CABLE_LENGTH={"AZURE": {"Ethernet0": "300m", "Ethernet8": "0m"}}, BUFFER_PG={"Ethernet0|3-4": {}})
    lines = render_config(_leaf(), there).splitlines()
    assert "set CABLE_LENGTH|AZURE Ethernet0 300m" in lines
    assert "set CABLE_LENGTH|AZURE Ethernet8 40m" in lines
    assert [line for line in lines if line.startswith("set BUFFER_PG|Ethernet0|")] == []
    assert "set BUFFER_PG|Ethernet8|3 profile NULL" in lines


def test_another_chip_has_no_map_of_priorities_to_groups() -> None:
    other = have(
        DEVICE_METADATA={"localhost": {"platform": "x86_64-arista_7060x6_64pe", "buffer_model": "traditional"}}
    )
    text = render_config(_leaf(), other)
    assert "pfc_to_pg_map" not in text
    assert "BUFFER_PG" not in text
    assert "pfc_to_pg_map" in render_config(_leaf(), have())


@pytest.mark.parametrize(
    ("speed", "low", "high"), [(100, 262144, 524288), (400, 1048576, 2097152), (800, 2097152, 4194304)]
)
def test_thresholds_follow_the_rate(speed: int, low: int, high: int) -> None:
    leaf = _leaf()
    config = replace(leaf, ports=(replace(leaf.ports[0], speed=speed),))
    lines = render_config(config, have()).splitlines()
    assert f"set WRED_PROFILE|rackready_{speed}g green_min_threshold {low}" in lines
    assert f"set WRED_PROFILE|rackready_{speed}g green_max_threshold {high}" in lines


def test_thresholds_of_the_site_replace_those_of_their_speed_only() -> None:
    leaf = _leaf()
    qos = replace(leaf.qos, ecn=(EcnThresholds(500_000, 2_000_000, 400),))
    ports = (replace(leaf.ports[0], speed=400), replace(leaf.ports[1], speed=800))
    lines = render_config(replace(leaf, qos=qos, ports=ports), have()).splitlines()
    assert "set WRED_PROFILE|rackready_400g green_min_threshold 500000" in lines
    assert "set WRED_PROFILE|rackready_400g red_max_threshold 2000000" in lines
    assert "set WRED_PROFILE|rackready_800g green_min_threshold 2097152" in lines


def _device(**fields: str) -> Config:
    there = have()
    return there | {"DEVICE_METADATA": {"localhost": there["DEVICE_METADATA"]["localhost"] | fields}}


MODES = ["1x800G[400G,200G]", "2x400G[200G,100G]"]
SPLIT = Breakout("Ethernet0", 2, 400, ("Ethernet0", "Ethernet4"))
REFUSED = {
    "breakout": (
        lambda: replace(_leaf(), breakouts=(SPLIT,)),
        have(BREAKOUT_CFG={"Ethernet0": {"brkout_mode": MODES[0]}}),
        (
            "leaf01 Ethernet0: breakout - Expected: 2x400G Actual: 1x800G[400G,200G]. Run `sudo config interface "
            "breakout Ethernet0 '2x400G[200G,100G]' -y -l`, then `sudo config save -y`."
        ),
    ),
    "no such port": (
        _leaf,
        have(PORT={name: {"speed": "800000"} for name in (port.name for port in _leaf().ports[1:])}),
        "leaf01 Ethernet0: port - Expected: there Actual: 15 others. Compare with `show interfaces status`.",
    ),
    "routed port": (
        _leaf,
        have(INTERFACE={"Ethernet0|10.0.0.0/31": {}}),
        (
            "leaf01 Ethernet0: INTERFACE|Ethernet0|10.0.0.0/31 - Expected: none. "
            "Run `sudo config interface ip remove Ethernet0 10.0.0.0/31`."
        ),
    ),
    "another VLAN": (
        _leaf,
        have(VLAN_MEMBER={"Vlan7|Ethernet0": {"tagging_mode": "untagged"}}),
        (
            "leaf01 Ethernet0: VLAN_MEMBER|Vlan7|Ethernet0 - Expected: untagged in Vlan901. "
            "Run `sudo config vlan member del 7 Ethernet0`."
        ),
    ),
    "a range of queues": (
        _leaf,
        have(QUEUE={"Ethernet0|3-4": {}}),
        "leaf01 Ethernet0: QUEUE|Ethernet0|3-4 - Expected: queue 3 alone. Write its queues as single entries.",
    ),
    "unnumbered": (
        lambda: replace(_spine(), ports=(_trunk("Ethernet0", "leaf01", 1, address="", peer_address=""),)),
        have(),
        (
            "spine01 Ethernet0: the link to leaf01 - Expected: numbered (/31) Actual: unnumbered. Set "
            "networks.underlay.links: numbered, with a pool: SONiC's bgpcfgd knows neighbours by address only."
        ),
    ),
    "another AS": (_spine, _device(bgp_asn="65100"), "bgp_asn - Expected: 65201 Actual: 65100."),
    "FRR's own file": (
        _spine,
        _device(docker_routing_config_mode="split"),
        "docker_routing_config_mode - Expected: separated or unified Actual: split.",
    ),
    "frrcfgd": (
        _spine,
        _device(frr_mgmt_framework_config="true"),
        "frr_mgmt_framework_config - Expected: false Actual: true.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_day_0_left_out_is_refused(case: str) -> None:
    config, there, said = REFUSED[case]
    with pytest.raises(SwitchError) as caught:
        refuse(config(), there, lambda _port: MODES)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "there",
    [
        _device(bgp_asn="65201", docker_routing_config_mode="separated"),
        _device(bgp_asn="None", docker_routing_config_mode="unified", frr_mgmt_framework_config="false"),
        have(QUEUE={"Ethernet0|3": {}, "Ethernet0|1-2": {}, "Ethernet88|3-4": {}}),
        have(INTERFACE={"Ethernet0": {}, "Ethernet0|10.1.1.0/31": {}, "Ethernet88|10.9.0.0/31": {}}),
        have(VLAN_MEMBER={"Vlan7|Ethernet88": {"tagging_mode": "untagged"}}),
    ],
)
def test_what_is_in_nobodys_way_is_accepted(there: Config) -> None:
    refuse(_spine(), there, lambda _port: [])


def test_a_port_that_is_split_as_wanted_is_accepted() -> None:
    there = have(BREAKOUT_CFG={"Ethernet0": {"brkout_mode": MODES[1]}})
    there["PORT"]["Ethernet4"] = {"speed": "400000"}
    refuse(replace(_leaf(), breakouts=(SPLIT,)), there, lambda _port: [])
