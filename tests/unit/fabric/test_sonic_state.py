"""State of a SONiC switch: what its daemons made of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.drivers.switch.sonic_state import state_of
from rackready.format_error import FormatError

OURS = {"description": "node01 rail1 (rackready)", "speed": "800000"}


def _config(**changes: Any) -> dict[str, Any]:
    qos = {"dscp_to_tc_map": "rackready", "pfc_enable": "3"}
    return {
        "PORT": {"Ethernet0": dict(OURS), "Ethernet8": dict(OURS), "Ethernet16": {}},
        "PORT_QOS_MAP": {"Ethernet0": dict(qos), "Ethernet8": dict(qos)},
        "DSCP_TO_TC_MAP": {"rackready": {"26": "3", "48": "6", "0": "0"}},
        **changes,
    }


def _hashes() -> dict[str, dict[str, str]]:
    out = {
        f"PORT_TABLE:{name}": {"mtu": "9216", "admin_status": "up", "oper_status": "up"}
        for name in ("Ethernet0", "Ethernet8", "Ethernet16")
    }
    out["PORT_TABLE:Ethernet16"]["oper_status"] = "down"
    out["VLAN_MEMBER_TABLE:Vlan901:Ethernet0"] = {"tagging_mode": "untagged"}
    out["VLAN_MEMBER_TABLE:Vlan7:Ethernet8"] = {"tagging_mode": "tagged"}
    for name in ("Ethernet0", "Ethernet8"):
        out[f"BUFFER_PG_TABLE:{name}:3-4"] = {"profile": "pg_lossless_800000_40m_profile"}
    return out


def test_a_switch_that_is_as_wanted() -> None:
    state = state_of(_config(), _hashes())
    assert state.ports["Ethernet0"].vlan == 901
    assert state.ports["Ethernet8"].vlan is None
    assert not state.ports["Ethernet16"].link_up
    assert (state.roce.mode, state.roce.pfc, state.roce.trusts_dscp) == ("lossless", frozenset({3}), True)
    assert state.roce.dscp_priority == {26: 3, 48: 6, 0: 0}


@pytest.mark.parametrize(
    "profile", [None, {"profile": "ingress_lossy_profile"}, {}], ids=["no group", "lossy", "no profile"]
)
def test_a_lossless_port_without_headroom_is_named(profile: dict[str, str] | None) -> None:
    hashes = _hashes()
    hashes.pop("BUFFER_PG_TABLE:Ethernet8:3-4")
    if profile is not None:
        hashes["BUFFER_PG_TABLE:Ethernet8:3"] = profile
    assert state_of(_config(), hashes).roce.mode == "no headroom on Ethernet8"
    hashes["PORT_TABLE:Ethernet8"]["admin_status"] = "down"  # SONiC takes the headroom of such a port back
    assert state_of(_config(), hashes).roce.mode == "lossless"


def test_ports_that_differ_are_named() -> None:
    config = _config()
    config["PORT_QOS_MAP"]["Ethernet8"]["pfc_enable"] = "3,4"
    assert state_of(config, _hashes()).roce.mode == "other priorities on Ethernet8"
    config["PORT_QOS_MAP"]["Ethernet8"] = {"pfc_enable": "3"}
    roce = state_of(config, _hashes()).roce
    assert (roce.trusts_dscp, roce.dscp_priority) == (False, {})


@pytest.mark.parametrize(
    ("watchdog", "maps", "on"),
    [
        ({"Ethernet8": {"action": "drop"}}, {"pfcwd_sw_enable": "3"}, True),
        ({"Ethernet8": {"action": "drop"}}, {"pfcwd_sw_enable": "4"}, False),
        ({"Ethernet8": {"action": "drop"}}, {}, False),
        ({"Ethernet0": {"action": "drop"}}, {"pfcwd_sw_enable": "3"}, False),
    ],
    ids=["on", "another priority", "no priority", "another port"],
)
def test_the_watchdog_guards_a_port_with_all_its_lossless_priorities(
    watchdog: dict[str, dict[str, str]],
    maps: dict[str, str],
    on: bool,  # noqa: FBT001 - a case
) -> None:
    config = _config(PFC_WD=watchdog)
    config["PORT_QOS_MAP"]["Ethernet8"] |= maps
    state = state_of(config, _hashes())
    assert state.ports["Ethernet8"].watchdog is on
    assert state.ports["Ethernet16"].watchdog is False


def test_a_switch_without_our_ports_has_no_roce() -> None:
    assert state_of(_config(PORT={"Ethernet0": {}}), _hashes()).roce.mode == "off"
    assert state_of(_config(PORT_QOS_MAP={}), _hashes()).roce.mode == "off"


@pytest.mark.parametrize(
    "fields",
    [
        {"admin_status": "up", "oper_status": "up"},
        {"mtu": "9216", "oper_status": "up"},
        {"mtu": "N/A", "admin_status": "up", "oper_status": "up"},
        {"mtu": "9216", "admin_status": "up", "oper_status": "testing"},
    ],
)
def test_a_port_of_unknown_shape_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(FormatError, match="PORT_TABLE:Ethernet0: mtu"):
        state_of(_config(), _hashes() | {"PORT_TABLE:Ethernet0": fields})


def test_an_empty_database_is_refused() -> None:
    with pytest.raises(FormatError, match="swss has not started"):
        state_of(_config(), {})
