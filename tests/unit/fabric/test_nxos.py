"""Cisco NX-OS on its simulated line: replaced with a timer, confirmed once it is over; safe to cut anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.switches import Breakout, SwitchConfig, UnderlayUnsupportedError, switch_config
from rackready.drivers.switch import nxos_edit, nxos_read
from rackready.drivers.switch.apply import ApplyResult, apply_config, differences
from rackready.drivers.switch.base import (
    RevisionState,
    SwitchBusyError,
    SwitchError,
    SwitchRevertedError,
    SwitchUncertainError,
)
from rackready.drivers.switch.cisco_nxos import CiscoNxos
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.drivers.switch.trunks import verify_trunks
from rackready.drivers.switch.verify import verify_config, verify_links
from rackready.format_error import FormatError
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from tests.lines.nxos import NxosLine
from tests.lines.session import LineSession
from tests.lines.sites import pod, rack


@pytest.fixture(scope="module")
def config() -> SwitchConfig:
    return switch_config(rack("cisco_nxos"), "leaf01")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "state.sqlite")


def driver(line: NxosLine) -> CiscoNxos:
    found = CiscoNxos("leaf01", LineSession(line))
    found.sleep = line.wait
    return found


def apply(line: NxosLine, config: SwitchConfig, ledger: Ledger, **options: bool) -> ApplyResult:
    return apply_config(driver(line), config, ledger, settle_s=0, **options)


def changing(sent: list[str]) -> list[str]:
    return [command for command in sent if not command.startswith(("show ", "dir "))]


def loaded(line: NxosLine, config: SwitchConfig) -> CiscoNxos:
    ours = driver(line)
    ours.load(ours.missing(ours.wanted(config)))
    return ours


def test_first_run_replaces_with_a_timer_confirms_outlives_it_and_saves(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine()
    before = line.uptime
    applied = apply(line, config, ledger)
    assert applied.changed
    assert "switchport access vlan 901" in applied.diff
    name = next(command for command in line.sent if command.startswith("scp")).removeprefix("scp bootflash:")
    assert changing(line.sent) == [
        f"scp bootflash:{name}",
        f"configure replace bootflash:{name} verify-only",
        f"configure replace bootflash:{name} commit-timeout 120",
        "configure replace commit",
        f"delete bootflash:{name} no-prompt",
        "copy running-config startup-config",
    ]
    assert line.uptime - before > 120
    assert line.startup == line.running.tree
    assert (line.files, line.timer) == ({}, None)


def test_second_run_changes_nothing(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine()
    apply(line, config, ledger)
    line.sent.clear()
    assert not apply(line, config, ledger).changed
    assert changing(line.sent) == []


def test_a_replaced_value_is_found_and_put_right_in_its_place(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine()
    apply(line, config, ledger)
    port = line.running.tree["interface Ethernet1/3"]
    port["mtu 1500"] = port.pop("mtu 9216")
    [found] = differences(driver(line), config, ledger)
    assert (found.command, found.wanted, found.actual) == ("interface Ethernet1/3 / mtu 9216", "9216", "1500")
    assert apply(line, config, ledger, check=True).ports == ("Ethernet1/3",)
    assert apply(line, config, ledger).changed
    assert "mtu 9216" in line.running.tree["interface Ethernet1/3"]


def test_lines_of_others_stay_and_ours_go(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine()
    line.running.tree["username maria role network-admin"] = {}
    apply(line, config, ledger)
    less = replace(config, ports=tuple(port for port in config.ports if port.vlan != 902), vlans=(901, 903, 904))
    assert apply(line, less, ledger).changed
    assert line.running.tree["interface Ethernet1/2"] == {}
    assert "vlan 902" not in line.running.tree
    assert {"username maria role network-admin", "feature scp-server", "vlan 1"} <= set(line.running.tree)


def test_a_vlan_in_a_range_of_others_is_taken_out_of_it() -> None:
    text = "\n!Command: show running-config\nversion 10.4(3)\nvlan 1,901-903\nvlan 903\n  name theirs\n"
    assert nxos_edit.edited(text, [("no vlan 902",)], lambda path: path).splitlines() == [
        "",
        "!Command: show running-config",
        "version 10.4(3)",
        "vlan 1,901,903",
        "vlan 903",
        "  name theirs",
    ]


def test_a_new_feature_comes_after_the_others_and_banners_stay() -> None:
    text = "version 10.4(3)\nfeature scp-server\nbanner motd #\n  feature bgp is off\n#\nvlan 1\n"
    found = nxos_edit.edited(text, [("feature bgp",), ("vlan 5",)], lambda path: path)
    assert found == (
        "version 10.4(3)\nfeature scp-server\nfeature bgp\nbanner motd #\n  feature bgp is off\n#\nvlan 1\nvlan 5\n"
    )


def test_without_its_scp_server_nothing_is_changed(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine()
    del line.running.tree["feature scp-server"]
    before = line.running.copy().tree
    with pytest.raises(SwitchError, match="Switch SCP on: `feature scp-server`"):
        apply(line, config, ledger)
    assert line.running.tree == before


def test_a_line_that_the_switch_does_not_take_is_named_and_the_file_deleted() -> None:
    line = NxosLine()
    before = line.running.copy().tree
    with pytest.raises(SwitchError, match="refused `frobnicate`"):
        driver(line).load(["interface Ethernet1/1 / frobnicate"])
    assert (line.running.tree, line.files) == (before, {})


def test_what_does_not_verify_goes_back_with_the_timer(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine(ignores="mtu")
    before = line.running.copy().tree
    with pytest.raises(SwitchRevertedError, match="MTU - Expected: 9216 bytes Actual: 1500 bytes"):
        apply(line, config, ledger)
    assert line.running.tree == before == line.startup
    assert (line.files, line.timer) == ({}, None)
    assert "configure replace commit" not in line.sent


def test_a_confirmation_that_the_switch_forgets_is_found_out(config: SwitchConfig) -> None:
    """What `configure replace commit` answers is published nowhere: only the configuration after the timer tells."""
    line = NxosLine(deaf=True)
    before = line.running.copy().tree
    ours = loaded(line, config)
    ours.commit(120)
    with pytest.raises(SwitchUncertainError, match="went back"):
        ours.confirm()
    assert line.running.tree == before == line.startup


@pytest.mark.parametrize("status", ["Config-replace commit timer: 95 seconds left", "Operation Status: In progress"])
def test_a_status_that_is_not_understood_changes_nothing(config: SwitchConfig, ledger: Ledger, status: str) -> None:
    line = NxosLine(status=status)
    with pytest.raises(SwitchUncertainError, match="Nothing was changed: a commit-timeout of somebody may run"):
        apply(line, config, ledger)
    assert changing(line.sent) == []


@pytest.mark.parametrize("status", ["", "\n", "Operation Status: Success\n", "Last: 1\nOperation Status: Failed\n"])
def test_a_replacement_that_is_over_does_not_disturb(config: SwitchConfig, ledger: Ledger, status: str) -> None:
    assert apply(NxosLine(status=status), config, ledger).changed


def test_a_change_of_somebody_between_load_and_commit_is_not_overwritten(config: SwitchConfig) -> None:
    line = NxosLine()
    ours = loaded(line, config)
    line.running.tree["hostname maria"] = line.running.tree.pop("hostname leaf01")
    with pytest.raises(SwitchBusyError, match="its configuration changed while ours was prepared"):
        ours.commit(120)
    assert "hostname maria" in line.running.tree
    assert line.files == {}


def test_nothing_is_saved_while_a_replacement_waits(config: SwitchConfig) -> None:
    line = NxosLine()
    ours = loaded(line, config)
    ours.commit(120)
    with pytest.raises(SwitchUncertainError, match="waits for its confirmation"):
        ours.save()
    assert "copy running-config startup-config" not in line.sent


def test_a_reboot_before_the_confirmation_boots_the_old_configuration(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine()
    before = line.running.copy().tree
    loaded(line, config).commit(120)
    line.reboot()
    assert line.running.tree == before
    assert [one.state for one in driver(line).revisions()] == [RevisionState.CANDIDATE]
    assert apply(line, config, ledger).changed


@pytest.mark.parametrize("moment", ["dies_at", "dies_before"])
def test_a_cut_at_every_command_ends_old_or_new_and_the_next_run_finishes(
    config: SwitchConfig, tmp_path: Path, moment: str
) -> None:
    one_port = replace(config, ports=config.ports[:1], vlans=(901,))
    new = NxosLine()
    apply(new, one_port, Ledger.open(tmp_path / "new.sqlite"))
    old = NxosLine().running.tree
    for position in range(len(new.sent)):
        ledger = Ledger.open(tmp_path / f"{position}.sqlite")
        line = NxosLine()
        setattr(line, moment, position)
        with pytest.raises(SwitchUnreachableError):
            apply(line, one_port, ledger)
        assert line.running.tree in (old, new.running.tree), line.sent[-1]
        assert line.startup in (old, new.running.tree)
        setattr(line, moment, None)
        if line.timer is not None and position % 2:
            line.wait(500)
            assert line.running.tree == old
        apply(line, one_port, ledger)
        assert line.running.tree == new.running.tree == line.startup, line.sent[position]
        assert line.timer is None, line.sent[position]


def test_a_killed_run_that_is_not_wanted_any_more_goes_back(
    config: SwitchConfig, ledger: Ledger, tmp_path: Path
) -> None:
    whole = NxosLine()
    apply(whole, config, Ledger.open(tmp_path / "whole.sqlite"))
    line = NxosLine(dies_at=next(at for at, command in enumerate(whole.sent) if "commit-timeout" in command))
    with pytest.raises(SwitchUnreachableError):
        apply(line, config, ledger)
    line.dies_at = None
    less = replace(config, ports=config.ports[1:])
    assert apply(line, less, ledger).note == "rolled back what an interrupted run had applied"
    assert line.running.tree["interface Ethernet1/1"] == {}


def test_a_port_that_is_not_split_yet_is_refused_before_any_change(config: SwitchConfig, ledger: Ledger) -> None:
    subs = ("Ethernet1/1/1", "Ethernet1/1/2")
    ports = tuple(replace(port, name=name) for port, name in zip(config.ports, subs, strict=False))
    split = replace(config, ports=ports, breakouts=(Breakout("Ethernet1/1", 2, 200, subs),), vlans=(901, 902))
    line = NxosLine()
    with pytest.raises(SwitchError, match="Expected: interface breakout module 1 port 1 map 200g-2x"):
        apply(line, split, ledger)
    assert changing(line.sent) == []
    line.split_ports(2, 200, "1")
    assert apply(line, split, ledger).changed
    assert "switchport access vlan 901" in line.running.tree["interface Ethernet1/1/1"]


def test_split_ports_that_one_line_lists_are_found(config: SwitchConfig, ledger: Ledger) -> None:
    breakouts = tuple(
        Breakout(f"Ethernet1/{port}", 2, 200, (f"Ethernet1/{port}/1", f"Ethernet1/{port}/2")) for port in (1, 3, 4)
    )
    names = [sub for one in breakouts for sub in one.sub_ports]
    ports = tuple(replace(port, name=name) for port, name in zip(config.ports, names, strict=False))
    split = replace(config, ports=ports, breakouts=breakouts)
    line = NxosLine()
    line.split_ports(2, 200, "1,3-4,20")
    assert apply(line, split, ledger).changed
    assert differences(driver(line), split, ledger) == []
    assert "interface breakout module 1 port 1,3-4,20 map 200g-2x" in line.running.tree
    other = replace(split, breakouts=(*breakouts, Breakout("Ethernet1/5", 2, 200, ())))
    with pytest.raises(SwitchError, match="Expected: interface breakout module 1 port 5 map 200g-2x"):
        apply(line, other, ledger)


@pytest.mark.parametrize("fec", ["fc", "off"])
def test_a_fec_that_the_driver_does_not_set_is_refused(config: SwitchConfig, fec: str) -> None:
    with pytest.raises(SwitchError, match="FEC of Ethernet1/1 - Expected: rs"):
        driver(NxosLine()).wanted(replace(config, ports=(replace(config.ports[0], fec=fec),)))


def test_read_back_has_ports_and_roce(config: SwitchConfig, ledger: Ledger) -> None:
    line = NxosLine(links_down=frozenset({"Ethernet1/4"}))
    apply(line, config, ledger)
    state = driver(line).read_back()
    assert verify_config(config, state) == []
    assert [finding.where for finding in verify_links(config, state)] == ["leaf01 Ethernet1/4"]
    assert (state.roce.mode, state.roce.pfc, state.roce.dscp_priority) == ("lossless", {3}, {26: 3, 48: 6})


@pytest.mark.parametrize(
    ("ignored", "code"),
    [("priority-flow-control mode", "switch-roce-off"), ("switchport access", "switch-port-vlan")],
)
def test_hardware_that_does_not_follow_is_found(config: SwitchConfig, ledger: Ledger, ignored: str, code: str) -> None:
    with pytest.raises(SwitchRevertedError) as caught:
        apply(NxosLine(ignores=ignored), config, ledger)
    assert code in {finding.code for finding in caught.value.findings}


def test_a_table_of_another_form_is_refused() -> None:
    with pytest.raises(SwitchError, match=r"Oper\(VL bmap\)"):
        nxos_read.roce("leaf01", "Port  Mode  Oper", set())
    with pytest.raises(SwitchError, match="TABLE_interface with ROW_interface"):
        nxos_read.rows("leaf01", {"TABLE_interface": {}})
    one = nxos_read.rows("leaf01", {"TABLE_interface": {"ROW_interface": {"interface": "Ethernet1/1"}}})
    with pytest.raises(SwitchError, match="state, admin_state, eth_mtu and vlan"):
        nxos_read.ports("leaf01", one, {})


def test_counters_are_refused_in_plain_words() -> None:
    with pytest.raises(FormatError, match="does not read counters by priority of Cisco NX-OS"):
        CiscoNxos.parse_counters("{}", 0)


@pytest.mark.parametrize("values", [{"priority": 0}, {"priority": 7}, {"cnp_priority": 0}, {"priority": 6}])
def test_queues_that_nxos_keeps_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(RackreadyError, match=r"fabric\.qos"):
        rack("cisco_nxos", qos=values)


@pytest.mark.parametrize("cnp_priority", [5, 6, 7])
def test_notifications_have_the_highest_queue_and_are_read_with_their_priority(
    ledger: Ledger, cnp_priority: int
) -> None:
    config = switch_config(rack("cisco_nxos", qos={"cnp_priority": cnp_priority}), "leaf01")
    line = NxosLine()
    apply(line, config, ledger)
    queues = line.running.tree["policy-map type queuing RACKREADY_OUT"]
    strict = [name for name, lines in queues.items() if "priority level 1" in lines]
    assert strict == ["class type queuing c-out-8q-q7"]
    state = driver(line).read_back()
    assert state.roce.dscp_priority == {26: 3, 48: cnp_priority}
    assert verify_config(config, state) == []


def test_links_without_addresses_are_refused() -> None:
    site, leaf, _ = pod("cisco_nxos", "unnumbered")
    with pytest.raises(UnderlayUnsupportedError) as caught:
        switch_config(site, leaf)
    assert str(caught.value) == (
        "networks.underlay.links: rackready does not route over these links with cisco_nxos - Expected: numbered "
        "Actual: unnumbered. Use the other kind, or switches of another system."
    )


def test_routed_leaf_and_spine_apply(ledger: Ledger) -> None:
    site, leaf, spine = pod("cisco_nxos", "numbered")
    for name in (leaf, spine):
        line = NxosLine(name=name)
        wanted = switch_config(site, name)
        assert apply(line, wanted, ledger).changed
        assert not apply(line, wanted, ledger).changed
        uplinks = [port.name for port in wanted.ports if port.peer]
        state = driver(line).read_back()
        assert {(state.ports[port].vlan, state.ports[port].admin_up) for port in uplinks} == {(None, True)}
        assert verify_trunks(wanted, state, driver(line).sessions()) == []


def test_neighbours_of_another_form_are_no_sessions() -> None:
    assert nxos_read.sessions({}) == nxos_read.sessions({"TABLE_vrf": {"ROW_vrf": {"TABLE_af": {}}}}) == {}
