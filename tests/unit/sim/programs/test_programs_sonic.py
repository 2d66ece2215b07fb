"""The simulated SONiC: what its updater refuses, and how its programs fail (sonic-utilities @691b1bbc4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.switch import sonic_counters
from tests.unit.fabric.sonic_switch import SonicSwitch


@pytest.fixture
def switch(tmp_path: Path) -> SonicSwitch:
    return SonicSwitch(tmp_path / "switch", ports=2)


def _patch(switch: SonicSwitch, *operations: dict[str, Any], dry: bool = False) -> tuple[int, str]:
    path = switch.root / "patch.json"
    path.write_text(json.dumps(operations))
    return switch.run(f"config apply-patch {'-d ' if dry else ''}{path}")


def _add(path: str, value: object) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


WATCHDOG = {"action": "drop", "detection_time": "200", "restoration_time": "200"}
REFUSED = [
    (_add("/BUFFER_POOL/ingress_lossless_pool/size", "1"), "Modification of BUFFER_POOL table is illegal"),
    ({"op": "remove", "path": "/LOOPBACK_INTERFACE"}, ""),
    (_add("/PORT/Ethernet0/speed", "123"), "Modification of PORT table is illegal"),
    (_add("/PORT/Ethernet0/fec", "best"), "Modification of PORT table is illegal"),
    (_add("/PORT/Ethernet0/mtu", "9999"), "will produce invalid config"),
    (_add("/PORT/Ethernet4", {"mtu": "9100"}), 'Missing required element "lanes"'),
    (_add("/VLAN", {}), "empty tables"),
    (_add("/NOBODYS_TABLE/a", {"b": "c"}), "tables without YANG models"),
    (_add("/VLAN_MEMBER/Vlan7|Ethernet0", {"tagging_mode": "untagged"}), "has no target"),
    (_add("/PORT_QOS_MAP/Ethernet0", {"dscp_to_tc_map": "gone"}), 'Leafref value "gone"'),
    (_add("/SCHEDULER/a", {"weight": "101"}), 'constraint "1..100"'),
    ({"op": "replace", "path": "/PORT/Ethernet0/fec", "value": "rs"}, "non-existent object"),
]


@pytest.mark.parametrize(("operation", "said"), REFUSED)
def test_what_the_updater_refuses(switch: SonicSwitch, operation: dict[str, Any], said: str) -> None:
    before = switch.config()
    code, text = _patch(switch, operation)
    if not said:  # the whole table may go: only its entry Loopback0 may not
        assert code == 0
        return
    assert (code, said in text) == (2, True), text
    assert switch.config() == before


def test_entries_that_never_go(switch: SonicSwitch) -> None:
    assert _patch(switch, _add("/LOOPBACK_INTERFACE/Loopback1", {}))[0] == 0
    code, text = _patch(switch, {"op": "remove", "path": "/LOOPBACK_INTERFACE/Loopback0"})
    assert (code, "illegal on field: /LOOPBACK_INTERFACE/Loopback0" in text) == (2, True)


def test_a_patch_adds_ports_to_the_watchdog_but_not_its_table(switch: SonicSwitch) -> None:
    refused = "Modification of PFC_WD table is illegal"
    for path, value in (
        ("/PFC_WD", {"Ethernet0": WATCHDOG}),
        ("/PFC_WD", {"GLOBAL": {"POLL_INTERVAL": "100"}}),
        ("/PFC_WD/GLOBAL", {"POLL_INTERVAL": "100"}),
    ):
        code, text = _patch(switch, _add(path, value))
        assert (code, refused in text) == (2, True), text
    assert switch.run("pfcwd interval 100") == (0, "")
    assert switch.config()["PFC_WD"] == {"GLOBAL": {"POLL_INTERVAL": "100"}}
    assert _patch(switch, _add("/PFC_WD/Ethernet0", WATCHDOG))[0] == 0
    assert _patch(switch, _add("/PFC_WD/Ethernet0/action", "alert"))[0] == 0
    assert refused in _patch(switch, _add("/PFC_WD/Ethernet0/BIG_RED_SWITCH", "enable"))[1]


def test_the_watchdog_depends_on_the_sku_and_its_interval(switch: SonicSwitch) -> None:
    assert switch.run("pfcwd interval 99")[0] == 2
    assert switch.run("pfcwd interval 300")[0] == 0
    smaller = "must be greater than or equal to POLL_INTERVAL"
    assert smaller in _patch(switch, _add("/PFC_WD/Ethernet0", WATCHDOG))[1]
    assert switch.run("pfcwd interval 200")[0] == 0
    assert _patch(switch, _add("/PFC_WD/Ethernet0", WATCHDOG))[0] == 0
    code, text = switch.run("pfcwd interval 300")
    assert (code, "unable to use polling interval = 300ms" in text) == (1, True)
    device = switch.config()["DEVICE_METADATA"]["localhost"]
    switch.put({"DEVICE_METADATA": {"localhost": device | {"hwsku": "Other"}}})
    assert "Modification of PFC_WD table is illegal" in _patch(switch, {"op": "remove", "path": "/PFC_WD"})[1]


def test_a_dry_run_changes_nothing(switch: SonicSwitch) -> None:
    before = switch.config()
    code, text = _patch(switch, _add("/VLAN/Vlan7", {"vlanid": "7"}), dry=True)
    assert (code, "DRY RUN" in text) == (0, True)
    assert switch.config() == before
    assert _patch(switch, _add("/VLAN/Vlan7", {"vlanid": "7"}))[0] == 0
    assert switch.config()["VLAN"] == {"Vlan7": {"vlanid": "7"}}


def test_a_patch_stops_where_it_fails_and_a_checkpoint_brings_all_back(switch: SonicSwitch) -> None:
    before = switch.config()
    assert switch.run("config checkpoint one")[0] == 0
    switch.hardware(gcu_stop_after=1)
    two = {"Vlan7": {"vlanid": "7"}, "Vlan8": {"vlanid": "8"}}
    assert _patch(switch, _add("/VLAN", two))[0] == 2
    assert list(switch.config()["VLAN"]) == ["Vlan7"]
    switch.hardware(gcu_stop_after=None)
    assert switch.run("config rollback one")[0] == 0
    assert switch.config() == before
    assert switch.run("config rollback two")[0] == 2


def test_nothing_survives_a_boot_without_save(switch: SonicSwitch) -> None:
    before = switch.config()
    _patch(switch, _add("/VLAN/Vlan7", {"vlanid": "7"}))
    switch.boot()
    assert switch.config() == before
    _patch(switch, _add("/VLAN/Vlan7", {"vlanid": "7"}))
    assert switch.run("config save -y")[0] == 0
    switch.boot()
    assert "Vlan7" in switch.config()["VLAN"]


def test_reload_asks_first(switch: SonicSwitch) -> None:
    assert switch.run("config reload")[0] == 1
    assert switch.run("config reload -y -f")[0] == 0
    assert switch.run("config nonsense")[0] == 2


def _announced(switch: SonicSwitch) -> list[str]:
    code, text = switch.run("docker exec bgp vtysh -c 'show bgp ipv4 unicast json'")
    assert code == 0, text
    return list(json.loads(text).get("routes", {}))


def test_bgp_announces_what_was_there_when_it_started(switch: SonicSwitch) -> None:
    switch.put({"LOOPBACK_INTERFACE": {"Loopback0|10.0.0.1/32": {}}, "VLAN_INTERFACE": {"Vlan7|10.7.0.1/24": {}}})
    device = switch.config()["DEVICE_METADATA"]["localhost"]
    switch.put({"DEVICE_METADATA": {"localhost": device | {"bgp_asn": "65101"}}})
    assert _announced(switch) == []
    assert switch.run("systemctl restart bgp")[0] == 0
    assert _announced(switch) == ["10.0.0.1/32", "10.7.0.0/24"]
    switch.boot()
    assert _announced(switch) == []
    assert switch.run("docker exec bgp vtysh -c 'show version'")[0] == 1


def test_databases(switch: SonicSwitch) -> None:
    assert switch.run("sonic-db-cli CONFIG_DB HGETALL 'LOOPBACK_INTERFACE|Loopback0'") == (0, "{'NULL': 'NULL'}\n")
    assert switch.run("sonic-db-cli -j CONFIG_DB HGETALL 'LOOPBACK_INTERFACE|Loopback0'") == (0, '{"NULL":"NULL"}\n')
    assert switch.run("sonic-db-cli CONFIG_DB HGET 'PORT|Ethernet0' speed") == (0, "800000\n")
    assert switch.run("sonic-db-cli APPL_DB KEYS 'PORT_TABLE:*'")[1].split() == [
        "PORT_TABLE:Ethernet0",
        "PORT_TABLE:Ethernet8",
    ]
    assert switch.run("sonic-db-cli NO_DB KEYS x")[0] == 1
    switch.hardware(db_cli_without_json=True)
    assert switch.run("sonic-db-cli -j APPL_DB KEYS x")[0] == 255


def test_counters_are_those_of_queues_and_groups_with_a_buffer(switch: SonicSwitch) -> None:
    code, text = switch.run(sonic_counters.script(["Ethernet0", "Ethernet8"]))
    found = sonic_counters.parse(text, code)
    assert {(port, one.uncounted_in, one.uncounted_out) for port, one in found.items()} == {
        (port, frozenset(range(1, 8)), frozenset()) for port in ("Ethernet0", "Ethernet8")
    }
    switch.put(
        {
            "BUFFER_PG": {"Ethernet8|3-4": {"profile": "NULL"}},
            "PORT_QOS_MAP": {"Ethernet8": {"pfc_enable": "3"}},
            "PORT": {"Ethernet8": switch.config()["PORT"]["Ethernet8"] | {"admin_status": "up"}},
        }
    )
    _, text = switch.run(sonic_counters.script(["Ethernet8"]))
    assert sonic_counters.parse(text)["Ethernet8"].uncounted_in == {1, 2, 4, 5, 6, 7}
    metadata = switch.config()["DEVICE_METADATA"]["localhost"] | {"create_only_config_db_buffers": "false"}
    switch.put({"DEVICE_METADATA": {"localhost": metadata}})
    _, text = switch.run(sonic_counters.script(["Ethernet0"]))
    assert sonic_counters.parse(text)["Ethernet0"].uncounted_in == frozenset()
