"""Bringing a SONiC switch to its configuration: changed once, then never; old or new after a cut anywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.design.switches import Gateway, Routing, SwitchConfig, switch_config
from rackready.drivers.switch.apply import ApplyResult, apply_config, differences
from rackready.drivers.switch.base import RevisionState, SwitchBusyError, SwitchError, SwitchRevertedError
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.drivers.switch.sonic import Sonic
from rackready.drivers.switch.trunks import verify_announced
from rackready.drivers.switch.verify import verify_config
from rackready.format_error import FormatError
from rackready.ledger.store import Ledger
from tests.unit.fabric.sonic_switch import SonicSwitch

ROOT = Path(__file__).resolve().parents[3]
CHANGING = (
    "pfcwd interval",
    "umask 077",
    "config apply-patch -d",
    "config checkpoint",
    "systemd-run",
    "touch",
    "config save",
)
"""What the scripts that change something have in them, in the order of a run."""


@pytest.fixture(scope="module")
def config() -> SwitchConfig:
    whole = switch_config(
        load_site("example-of-sim", site_file=ROOT / "inventories/sim-sonic/site.yml", root=ROOT), "leaf01"
    )
    return replace(whole, ports=whole.ports[:2], vlans=whole.vlans[:2])


@pytest.fixture
def switch(tmp_path: Path) -> SonicSwitch:
    return SonicSwitch(tmp_path / "switch", ports=2)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "state.sqlite")


def _apply(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger, **options: bool) -> ApplyResult:
    return apply_config(Sonic("leaf01", switch), config, ledger, settle_s=0, **options)


def _has_all(tables: dict[str, Any], config: SwitchConfig) -> bool:
    return (
        all(tables.get("VLAN_MEMBER", {}).get(f"Vlan{port.vlan}|{port.name}") for port in config.ports)
        and len(tables.get("QUEUE", {})) == 3 * len(config.ports)
        and len(tables.get("WRED_PROFILE", {})) == 1
    )


def _is_old(tables: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether nothing is new but the watchdog's poll interval, which is the one that orchagent has anyway."""
    interval = {"PFC_WD": {"GLOBAL": {"POLL_INTERVAL": "100"}}}
    return tables in (old, {**old, **interval})


def _whole(tables: dict[str, Any], old: dict[str, Any], config: SwitchConfig) -> bool:
    return _is_old(tables, old) or _has_all(tables, config)


def test_first_run_changes_saves_and_leaves_nothing_behind(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger
) -> None:
    applied = _apply(switch, config, ledger)
    assert applied.changed
    assert "+ set VLAN_MEMBER|Vlan901|Ethernet0 tagging_mode untagged" in applied.diff
    assert _has_all(switch.config(), config)
    assert switch.saved() == switch.config()
    assert switch.config()["BUFFER_POOL"] == {"ingress_lossless_pool": {"mode": "dynamic", "type": "ingress"}}
    assert switch.timers() == []
    assert not list((switch.root / "etc/sonic/checkpoints").iterdir())
    assert Sonic("leaf01", switch).revisions() == []


def test_second_run_only_reads(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    _apply(switch, config, ledger)
    switch.sent.clear()
    before = switch.config()
    assert not _apply(switch, config, ledger).changed
    assert not [text for text in switch.sent if any(word in text for word in CHANGING)]
    assert switch.config() == before


def test_the_watchdogs_table_is_made_once_and_ports_are_added_to_it(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger
) -> None:
    assert "PFC_WD" not in switch.config()
    _apply(switch, config, ledger)
    found = switch.saved()["PFC_WD"]
    assert found.pop("GLOBAL") == {"POLL_INTERVAL": "100"}
    assert {port: fields["action"] for port, fields in found.items()} == {"Ethernet0": "drop", "Ethernet8": "drop"}
    less = replace(config, ports=config.ports[:1], vlans=config.vlans[:1])
    _apply(switch, less, ledger)
    assert set(switch.config()["PFC_WD"]) == {"GLOBAL", "Ethernet0"}
    assert len([text for text in switch.sent if "pfcwd interval" in text]) == 1


def test_a_check_changes_nothing(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    before = switch.config()
    applied = _apply(switch, config, ledger, check=True)
    assert applied.changed
    assert set(applied.ports) == {"Ethernet0", "Ethernet8"}
    assert switch.config() == before


def test_a_difference_has_both_values(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    _apply(switch, config, ledger)
    switch.put({"PORT": {"Ethernet0": switch.config()["PORT"]["Ethernet0"] | {"mtu": "1500"}}})
    found = differences(Sonic("leaf01", switch), config, ledger)
    assert [(one.command, one.wanted, one.actual) for one in found] == [("set PORT|Ethernet0 mtu 9216", "9216", "1500")]


def _cut_after(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger, place: int) -> None:
    """Run until the session is lost right after the change of that number."""
    probe = switch.feed

    def feed(command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        done = probe(command, text, timeout_s=timeout_s)
        changes = [one for one in switch.sent if any(word in one for word in CHANGING)]
        if len(changes) > place:
            raise SwitchUnreachableError("leaf01: the session was lost")
        return done

    switch.feed = feed  # type: ignore[method-assign]
    with pytest.raises(SwitchUnreachableError):
        _apply(switch, config, ledger)
    switch.feed = probe  # type: ignore[method-assign]


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("then", ["run", "expire", "boot"])
def test_cut_after_every_change_it_ends_old_or_new_and_the_next_run_knows(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger, place: int, then: str
) -> None:
    old = switch.config()
    _cut_after(switch, config, ledger, place)
    if then != "run":
        switch.expire() if then == "expire" else switch.boot()
        assert _whole(switch.config(), old, config)
    assert _whole(switch.saved(), old, config)
    _apply(switch, config, ledger)
    assert _has_all(switch.config(), config)
    assert switch.saved() == switch.config()
    assert switch.timers() == []
    assert Sonic("leaf01", switch).revisions() == []


@pytest.mark.parametrize("then", ["run", "expire", "boot"])
def test_a_patch_that_stops_half_way_in_a_lost_session_is_reverted(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger, then: str
) -> None:
    old = switch.config()
    switch.hardware(gcu_stop_after=7)
    _cut_after(switch, config, ledger, 5)
    assert not _whole(switch.config(), old, config)
    assert [one.state for one in Sonic("leaf01", switch).revisions()] == [RevisionState.UNCONFIRMED]
    switch.hardware(gcu_stop_after=None)
    if then != "run":
        switch.expire() if then == "expire" else switch.boot()
        assert _is_old(switch.config(), old)
    _apply(switch, config, ledger)
    assert _has_all(switch.config(), config)
    assert switch.timers() == []


def test_a_patch_that_stops_half_way_is_rolled_back_at_once(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger
) -> None:
    old = switch.config()
    switch.hardware(gcu_stop_after=7)
    with pytest.raises(
        SwitchError, match=r"leaf01: `config apply-patch` - Expected: exit 0 Actual: 2 .*The change was"
    ):
        # the rollback stops half-way, too: the reload ends old
        _apply(switch, config, ledger)
    assert _is_old(switch.config(), old)
    assert switch.timers() == []
    switch.hardware(gcu_stop_after=None)
    assert _apply(switch, config, ledger).changed


def test_what_sonic_refuses_is_named_and_nothing_is_applied(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger
) -> None:
    switch.put({"DEVICE_METADATA": {"localhost": switch.config()["DEVICE_METADATA"]["localhost"] | {"hwsku": "Other"}}})
    old = switch.config()
    with pytest.raises(
        SwitchError, match=r"`config apply-patch -d` - Expected: accepted Actual: .*PFC_WD table is illegal"
    ):
        _apply(switch, config, ledger)
    assert _is_old(switch.config(), old)
    assert Sonic("leaf01", switch).revisions() == []


def test_a_change_that_does_not_verify_is_rolled_back(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger
) -> None:
    old = switch.config()
    driver = Sonic("leaf01", switch)
    read = driver.read_back

    def without_headroom() -> Any:  # noqa: ANN401 - the state of the switch
        found = read()
        return replace(found, roce=replace(found.roce, mode="no headroom on Ethernet0"))

    driver.read_back = without_headroom  # type: ignore[method-assign]
    with pytest.raises(SwitchRevertedError, match="no headroom on Ethernet0"):
        apply_config(driver, config, ledger, settle_s=0)
    assert _is_old(switch.config(), old)
    assert switch.timers() == []


def test_the_timer_is_longer_than_the_patch_may_take(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    _cut_after(switch, config, ledger, 4)
    lines = len(Sonic("leaf01", switch).wanted(config))
    assert len(switch.timers()) == 1
    assert 300 < switch.timers()[0] <= 300 + 5 * lines + 120


def test_the_change_of_somebody_else_is_left_alone(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    other = Sonic("leaf01", switch)
    other.load(["set PORT|Ethernet0 mtu 1500"])
    with pytest.raises(SwitchBusyError, match=r"of user admin is pending .*`sudo rm /run/rackready/rackready-"):
        _apply(switch, config, ledger)
    other.discard()
    assert _apply(switch, config, ledger).changed


def test_confirm_after_the_revert_says_so(switch: SonicSwitch) -> None:
    driver = Sonic("leaf01", switch)
    driver.load(["set PORT|Ethernet0 mtu 1500"])
    driver.commit(120)
    switch.expire()
    with pytest.raises(SwitchError, match=r"Expected: kept Actual: it was reverted\. Run again"):
        driver.confirm()


def test_a_port_that_left_the_site_is_cleared(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    _apply(switch, config, ledger)
    less = replace(config, ports=config.ports[:1], vlans=config.vlans[:1])
    assert _apply(switch, less, ledger).changed
    tables = switch.config()
    assert set(tables["VLAN"]) == {"Vlan901"}
    assert set(tables["VLAN_MEMBER"]) == {"Vlan901|Ethernet0"}
    port = tables["PORT"]["Ethernet8"]
    assert (port["admin_status"], port["mtu"], port["speed"], "description" in port) == (
        "down",
        "9100",
        "800000",
        False,
    )
    assert not [key for key in tables["QUEUE"] if key.startswith("Ethernet8|")]
    assert not _apply(switch, less, ledger).changed


def test_lines_of_the_system_before_are_no_concern(switch: SonicSwitch) -> None:
    driver = Sonic("leaf01", switch)
    before = ["nv set interface swp1 link mtu 9216"]
    assert driver.unwanted([before], ["set VLAN|Vlan901 vlanid 901"]) == []
    assert driver.still_apart([*before, "remove VLAN|Vlan7"], []) == ["remove VLAN|Vlan7"]


def test_what_others_wrote_stays(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    theirs = {"VLAN": {"Vlan7": {"vlanid": "7"}}, "DSCP_TO_TC_MAP": {"AZURE": {"0": "1"}}}
    switch.put(theirs)
    _apply(switch, config, ledger)
    assert switch.config()["VLAN"]["Vlan7"] == {"vlanid": "7"}
    assert switch.config()["DSCP_TO_TC_MAP"]["AZURE"] == {"0": "1"}


def test_a_release_without_json_is_read_as_well(tmp_path: Path, config: SwitchConfig, ledger: Ledger) -> None:
    switch = SonicSwitch(tmp_path / "old", ports=2, db_cli_without_json=True)
    assert _apply(switch, config, ledger).changed
    assert not _apply(switch, config, ledger).changed


ROUTES = ["10.0.0.1/32", "192.168.1.0/24"]


def _routed(config: SwitchConfig, asn: int = 65101) -> SwitchConfig:
    return replace(config, gateways=(Gateway(901, "192.168.1.1/24"),), routing=Routing(asn, "10.0.0.1"))


def test_a_routed_leaf_announces_its_prefixes_after_the_first_run(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger
) -> None:
    routed, driver = _routed(config), Sonic("leaf01", switch)
    assert {finding.code for finding in verify_announced(routed, driver.announced())} == {"switch-prefix-not-announced"}
    _apply(switch, routed, ledger)
    assert driver.announced() == set(ROUTES)
    assert verify_announced(routed, driver.announced()) == []
    more = replace(routed, gateways=(*routed.gateways, Gateway(902, "192.168.2.1/24")))
    found = verify_announced(more, driver.announced())
    assert [(str(one.where), one.what) for one in found] == [("leaf01", "prefix 192.168.2.0/24")]
    _apply(switch, more, ledger)
    assert driver.announced() == {*ROUTES, "192.168.2.0/24"}


def test_a_gateway_routes_packets_as_large_as_its_ports(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger
) -> None:
    routed = _routed(config)
    _apply(switch, routed, ledger)
    assert Sonic("leaf01", switch).read_back().gateway_mtu == {901: 9216, 902: 9100}
    vlan = {name: value for name, value in switch.config()["VLAN"]["Vlan901"].items() if name != "mtu"}
    switch.put({"VLAN": {"Vlan901": vlan}})
    found = verify_config(routed, Sonic("leaf01", switch).read_back())
    assert [(one.code, str(one.where), one.actual) for one in found] == [
        ("switch-port-mtu", "leaf01 Vlan901", "9100 bytes")
    ]


def test_bgp_is_not_restarted_for_other_changes(switch: SonicSwitch, config: SwitchConfig, ledger: Ledger) -> None:
    _apply(switch, config, ledger)
    assert not [text for text in switch.sent if "restart bgp" in text]
    _apply(switch, _routed(config), ledger)
    switch.sent.clear()
    _apply(switch, _routed(replace(config, ports=config.ports[:1])), ledger)
    assert not [text for text in switch.sent if "restart bgp" in text]


@pytest.mark.parametrize("then", ["expire", "rollback"])
def test_a_reverted_change_leaves_bgp_as_it_was(
    switch: SonicSwitch, config: SwitchConfig, ledger: Ledger, then: str
) -> None:
    _apply(switch, _routed(config), ledger)
    driver = Sonic("leaf01", switch)
    driver.load(["set VLAN_INTERFACE|Vlan902", "set VLAN_INTERFACE|Vlan902|192.168.2.1/24"])
    driver.commit(120)
    assert driver.announced() == {*ROUTES, "192.168.2.0/24"}
    switch.expire() if then == "expire" else driver.rollback()
    assert driver.announced() == set(ROUTES)


def test_sessions_are_read_in_lower_case(switch: SonicSwitch) -> None:
    assert Sonic("leaf01", switch).sessions() == {}
    switch.hardware(bgp={"10.1.1.1": "Established", "10.1.2.1": "Connect"})
    assert Sonic("leaf01", switch).sessions() == {"10.1.1.1": "established", "10.1.2.1": "connect"}


def test_nobody_adds_what_sonic_never_removes(switch: SonicSwitch) -> None:
    switch.put({"PFC_WD": {"Ethernet0": {"action": "drop", "detection_time": "400", "restoration_time": "400"}}})
    with pytest.raises(SwitchError, match=r"/PFC_WD/GLOBAL would be added - .*SONiC never removes it"):
        Sonic("leaf01", switch).load(["set PFC_WD|GLOBAL POLL_INTERVAL 200"])
    assert "GLOBAL" not in json.dumps(switch.config())


def test_counters_of_a_switch_are_read_as_its_programs_print_them(switch: SonicSwitch) -> None:
    code, text = switch.run(Sonic.counters_command(["Ethernet0", "Ethernet8"]))
    assert set(Sonic.parse_counters(text, code)) == {"Ethernet0", "Ethernet8"}
    code, text = switch.run(Sonic.counters_command(["Ethernet512"]))
    with pytest.raises(FormatError, match="Ethernet512: COUNTERS_PORT_NAME_MAP has nothing of this port"):
        Sonic.parse_counters(text, code)
