"""Arista EOS on its simulated line: changed once, safe to cut anywhere; an unknown answer reverts nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.switches import SwitchConfig, switch_config
from rackready.drivers.switch import eos_read
from rackready.drivers.switch.apply import ApplyResult, apply_config, differences
from rackready.drivers.switch.arista_eos import AristaEos
from rackready.drivers.switch.base import (
    SwitchBusyError,
    SwitchError,
    SwitchRevertedError,
    SwitchUncertainError,
)
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.drivers.switch.trunks import verify_trunks
from rackready.drivers.switch.verify import verify_config, verify_links
from rackready.format_error import FormatError
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from tests.lines.eos import EosLine
from tests.lines.session import LineSession
from tests.lines.sites import pod, rack


@pytest.fixture(scope="module")
def config() -> SwitchConfig:
    return switch_config(rack("arista_eos"), "leaf01")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "state.sqlite")


def driver(line: EosLine) -> AristaEos:
    return AristaEos("leaf01", LineSession(line))


def apply(line: EosLine, config: SwitchConfig, ledger: Ledger, **options: bool) -> ApplyResult:
    return apply_config(driver(line), config, ledger, settle_s=0, **options)


def changing(sent: list[str]) -> list[str]:
    return [command for command in sent if not command.startswith("show ")]


def settled(line: EosLine) -> bool:
    """No session of ours waits for anything."""
    return line.timer is None and not [one for one in line.sessions.values() if one.state == "pending"]


@pytest.mark.parametrize("since_4_32", [True, False])
def test_first_run_commits_with_a_timer_confirms_and_saves_in_that_order(
    config: SwitchConfig, ledger: Ledger, *, since_4_32: bool
) -> None:
    line = EosLine(since_4_32=since_4_32)
    assert not line.running.tree["interface Ethernet1/1"]
    applied = apply(line, config, ledger)
    assert applied.changed
    assert "+   mtu 9214" in applied.diff
    session = next(iter(line.sessions))
    assert [command for command in changing(line.sent) if "session" in command or command.startswith("write")] == [
        f"configure session {session}",
        f"configure session {session} commit timer 00:02:00",
        f"configure session {session} commit",
        "write memory",
    ]
    assert line.startup == line.running.tree
    assert settled(line)


def test_second_run_sends_nothing_that_changes(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine()
    apply(line, config, ledger)
    line.sent.clear()
    assert not apply(line, config, ledger).changed
    assert changing(line.sent) == []


def test_only_what_is_missing_is_typed_and_drift_names_both_values(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine()
    apply(line, config, ledger)
    port = line.running.tree["interface Ethernet3/1"]
    port["mtu 1500"] = port.pop("mtu 9214")
    [found] = differences(driver(line), config, ledger)
    assert (found.command, found.wanted, found.actual) == ("interface Ethernet3/1 / mtu 9214", "9214", "1500")
    line.sent.clear()
    assert apply(line, config, ledger).changed
    typed = changing(line.sent)
    assert typed[1:5] == ["interface Ethernet3/1", "mtu 9214", "exit", "end"]


def test_a_check_changes_nothing_and_names_the_ports(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine()
    apply(line, config, ledger)
    line.running.tree["interface Ethernet3/1"]["shutdown"] = {}
    line.sent.clear()
    dry = apply(line, config, ledger, check=True)
    assert (dry.diff, dry.ports) == ("+ interface Ethernet3/1 / no shutdown", ("Ethernet3/1",))
    assert changing(line.sent) == []


def test_lines_of_others_stay_and_ours_go_when_the_site_names_them_no_more(
    config: SwitchConfig, ledger: Ledger
) -> None:
    line = EosLine()
    line.running.tree["interface Ethernet2/1"]["switchport trunk allowed vlan 7"] = {}
    apply(line, config, ledger)
    less = replace(config, ports=tuple(port for port in config.ports if port.vlan != 902), vlans=(901, 903, 904))
    assert apply(line, less, ledger).changed
    assert list(line.running.tree["interface Ethernet2/1"]) == ["switchport trunk allowed vlan 7"]
    assert "vlan 902" not in line.running.tree
    assert "hostname leaf01" in line.running.tree


def test_a_vlan_that_others_use_stays(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine()
    apply(line, config, ledger)
    line.running.tree["interface Ethernet60/1"]["switchport access vlan 902"] = {}
    less = replace(config, ports=tuple(port for port in config.ports if port.vlan != 902), vlans=(901, 903, 904))
    apply(line, less, ledger)
    assert "vlan 902" in line.running.tree


def test_a_lost_ledger_knows_our_ports_by_their_mark(config: SwitchConfig, ledger: Ledger, tmp_path: Path) -> None:
    line = EosLine()
    apply(line, config, ledger)
    line.running.tree["interface Ethernet60/1"]["description a port of somebody"] = {}
    less = replace(config, ports=config.ports[1:])
    apply(line, less, Ledger.open(tmp_path / "another.sqlite"))
    assert not [text for text in line.running.tree["interface Ethernet1/1"] if text.startswith(("mtu", "description"))]
    assert line.running.tree["interface Ethernet60/1"] == {"description a port of somebody": {}}


def test_a_refused_line_is_named_and_the_session_aborted(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine(refuses="uc-tx-queue 3")
    before = line.running.copy().tree
    with pytest.raises(SwitchError) as caught:
        apply(line, config, ledger)
    assert "leaf01: `uc-tx-queue 3` refused - Expected: accepted" in str(caught.value)
    assert line.running.tree == before
    assert settled(line)


def test_the_driver_itself_aborts_a_session_with_a_refused_line() -> None:
    line = EosLine(refuses="mtu")
    with pytest.raises(SwitchError, match="`mtu 9214` refused"):
        driver(line).load(["interface Ethernet1/1 / mtu 9214"])
    assert [one.state for one in line.sessions.values()] == ["aborted"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (EosLine(odd_from=r"configure session \S+ commit timer"), "Nothing was reverted"),
        (EosLine(hides_timer=True), "Actual: no timer"),
    ],
)
def test_an_uncertain_commit_stays_open_and_the_next_run_finishes_it(
    config: SwitchConfig, ledger: Ledger, line: EosLine, text: str
) -> None:
    with pytest.raises(SwitchUncertainError, match=text):
        apply(line, config, ledger)
    assert [entry.status for entry in ledger.entries("leaf01")] == ["intent"]
    line.odd, line.odd_from, line.hides_timer = False, "", False
    assert apply(line, config, ledger).note == "confirmed what an interrupted run had applied"
    assert settled(line)


@pytest.mark.parametrize("refused", ["configure session .* commit timer", "show session-config named .* diffs"])
def test_a_refusal_later_on_aborts_the_session_too(config: SwitchConfig, ledger: Ledger, refused: str) -> None:
    line = EosLine(refuses=refused)
    before = line.running.copy().tree
    with pytest.raises(SwitchError):
        apply(line, config, ledger)
    assert line.running.tree == before
    assert settled(line)


def test_what_does_not_verify_is_taken_back_at_once(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine(l2_mtu=1500)
    before = line.running.copy().tree
    with pytest.raises(SwitchRevertedError, match="MTU - Expected: 9214 bytes Actual: 1500 bytes"):
        apply(line, config, ledger)
    assert line.running.tree == before == line.startup
    assert settled(line)


def test_a_full_list_of_sessions_is_refused_with_the_way_out() -> None:
    line = EosLine()
    for number in range(5):
        line.type(f"configure session left{number}")
        line.login()
    with pytest.raises(
        SwitchBusyError, match=r"Expected: fewer than 5 Actual: left0, .*`configure session left0 abort`"
    ):
        driver(line).load(["interface Ethernet1/1 / mtu 9214"])
    assert len(line.sessions) == 5


def test_somebody_elses_session_is_left_alone(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine()
    for typed in ("configure session maria", "hostname other", "end"):
        line.type(typed)
    line.sent.clear()
    with pytest.raises(SwitchBusyError, match="dropped with `configure session maria abort`"):
        apply(line, config, ledger)
    assert changing(line.sent) == []


def test_a_change_of_somebody_between_load_and_commit_is_not_overwritten(config: SwitchConfig) -> None:
    line = EosLine()
    ours = driver(line)
    ours.load(ours.missing(ours.wanted(config)))
    line.running.tree["hostname maria"] = line.running.tree.pop("hostname leaf01")
    with pytest.raises(SwitchBusyError, match="its configuration changed while ours was prepared"):
        ours.commit(120)
    assert "hostname maria" in line.running.tree
    assert settled(line)


def test_an_unknown_form_of_the_pending_state_reverts_nothing(config: SwitchConfig, ledger: Ledger) -> None:
    """SUNET/cnaas-nms issue 395: a reader of the old form only aborted every good change."""
    line = EosLine()
    ours = driver(line)
    ours.load(ours.missing(ours.wanted(config)))
    line.odd = True
    with pytest.raises(SwitchUncertainError, match="Nothing was reverted"):
        ours.commit(120)
    assert line.timer is not None
    assert "mtu 9214" in line.running.tree["interface Ethernet1/1"]
    assert not [command for command in line.sent if command.endswith(" abort")]
    with pytest.raises(SwitchUncertainError):
        apply(line, config, ledger)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"sessions": []},
        {"sessions": {"rackready-1": {"state": "confirming"}}},
        {"sessions": {}, "commitTimerSessionName": "rackready-1"},
        {"sessions": {"rackready-1": "pending"}},
    ],
)
def test_a_state_that_nobody_published_is_uncertain(document: dict[str, object]) -> None:
    with pytest.raises(SwitchUncertainError):
        eos_read.sessions("leaf01", document)


def test_nothing_is_saved_while_a_commit_waits(config: SwitchConfig) -> None:
    line = EosLine()
    ours = driver(line)
    ours.load(ours.missing(ours.wanted(config)))
    ours.commit(120)
    with pytest.raises(SwitchUncertainError, match="waits for its confirmation"):
        ours.save()
    assert "write memory" not in line.sent


def test_nothing_is_confirmed_that_is_not_ours_or_not_there() -> None:
    line = EosLine()
    with pytest.raises(SwitchUncertainError, match="no session waits"):
        driver(line).confirm()
    for typed in ("configure session maria", "hostname other", "end", "configure session maria commit timer 00:05:00"):
        line.type(typed)
    with pytest.raises(SwitchUncertainError, match="Actual: maria"):
        driver(line).confirm()
    assert line.timer is not None


def test_without_confirmation_the_switch_goes_back_by_itself(config: SwitchConfig) -> None:
    line = EosLine()
    before = line.running.copy().tree
    ours = driver(line)
    ours.load(ours.missing(ours.wanted(config)))
    ours.commit(120)
    line.wait(121)
    assert line.running.tree == before
    with pytest.raises(SwitchUncertainError, match="no session waits"):
        ours.confirm()


def test_a_reboot_before_the_confirmation_boots_the_old_configuration(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine()
    before = line.running.copy().tree
    ours = driver(line)
    ours.load(ours.missing(ours.wanted(config)))
    ours.commit(120)
    line.reboot()
    assert line.running.tree == before
    assert apply(line, config, ledger).changed


def test_a_pager_is_no_answer() -> None:
    with pytest.raises(SwitchUnreachableError, match="--More--"):
        driver(EosLine(paging=True)).missing(["vlan 901"])


@pytest.mark.parametrize(("moment", "since_4_32"), [("dies_at", True), ("dies_before", False)])
def test_a_cut_at_every_command_ends_old_or_new_and_the_next_run_finishes(
    config: SwitchConfig, tmp_path: Path, moment: str, *, since_4_32: bool
) -> None:
    one_port = replace(config, ports=config.ports[:1], vlans=(901,))
    new = EosLine(since_4_32=since_4_32)
    apply(new, one_port, Ledger.open(tmp_path / "new.sqlite"))
    old = EosLine().running.tree
    for position in range(len(new.sent)):
        ledger = Ledger.open(tmp_path / f"{position}.sqlite")
        line = EosLine(since_4_32=since_4_32)
        setattr(line, moment, position)
        with pytest.raises(SwitchUnreachableError):
            apply(line, one_port, ledger)
        assert line.running.tree in (old, new.running.tree), line.sent[-1]
        assert line.startup in (old, new.running.tree)
        setattr(line, moment, None)
        if line.timer is not None and position % 2:
            line.wait(500)
            assert line.running.tree == old
        result = apply(line, one_port, ledger)
        assert result.changed or result.note or line.sent[position].startswith(("show", "write")), line.sent[position]
        assert line.running.tree == new.running.tree == line.startup
        assert settled(line), line.sent[position]


def test_a_killed_run_that_is_not_wanted_any_more_is_rolled_back(
    config: SwitchConfig, ledger: Ledger, tmp_path: Path
) -> None:
    whole = EosLine()
    apply(whole, config, Ledger.open(tmp_path / "whole.sqlite"))
    line = EosLine(dies_at=next(at for at, command in enumerate(whole.sent) if " commit timer " in command))
    with pytest.raises(SwitchUnreachableError):
        apply(line, config, ledger)
    line.dies_at = None
    less = replace(config, ports=config.ports[1:])
    assert apply(line, less, ledger).note == "rolled back what an interrupted run had applied"
    assert not line.running.tree["interface Ethernet1/1"]


def test_read_back_has_ports_and_roce(config: SwitchConfig, ledger: Ledger) -> None:
    line = EosLine(links_down=frozenset({"Ethernet4/1"}))
    apply(line, config, ledger)
    state = driver(line).read_back()
    assert verify_config(config, state) == []
    assert [finding.where for finding in verify_links(config, state)] == ["leaf01 Ethernet4/1"]
    assert (state.roce.mode, state.roce.pfc, state.roce.trusts_dscp) == ("lossless", {3}, True)
    assert (state.roce.dscp_priority[26], state.roce.dscp_priority[48]) == (3, 6)


@pytest.mark.parametrize(
    ("ignored", "code"),
    [
        ("service-profile", "switch-roce-off"),
        ("switchport access", "switch-port-vlan"),
    ],
)
def test_hardware_that_does_not_follow_is_found(config: SwitchConfig, ledger: Ledger, ignored: str, code: str) -> None:
    line = EosLine(ignores=ignored)
    with pytest.raises(SwitchRevertedError) as caught:
        apply(line, config, ledger)
    assert code in {finding.code for finding in caught.value.findings}


@pytest.mark.parametrize("text", ["", "% Unavailable command (not supported on this hardware platform)"])
def test_a_switch_without_priority_flow_control_is_no_lossless_one(text: str) -> None:
    with pytest.raises(SwitchError, match="Port, Enabled, Priorities, Active"):
        eos_read.roce("leaf01", text, set())


def test_counters_are_refused_in_plain_words() -> None:
    with pytest.raises(FormatError, match="does not read counters by priority of Arista EOS"):
        AristaEos.parse_counters("{}", 0)


@pytest.mark.parametrize("values", [{"priority": 7}, {"priority": 1}, {"cnp_priority": 7}, {"priority": 6}])
def test_queues_that_eos_keeps_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(RackreadyError, match=r"fabric\.qos"):
        rack("arista_eos", qos=values)


def test_an_mtu_beyond_the_ports_is_refused() -> None:
    with pytest.raises(RackreadyError) as caught:
        rack("arista_eos", switch_mtu=9216)
    assert (
        "fabric.switch_mtu: ports of arista_eos do not take this MTU - Expected: at most 9214 bytes Actual: 9216."
        in str(caught.value)
    )


def test_routed_leaf_and_spine_apply(ledger: Ledger) -> None:
    site, leaf, spine = pod("arista_eos", "unnumbered")
    for name in (leaf, spine):
        line = EosLine(name=name)
        wanted = switch_config(site, name)
        assert apply(line, wanted, ledger).changed
        assert not apply(line, wanted, ledger).changed
        uplinks = [port.name for port in wanted.ports if port.peer]
        state = driver(line).read_back()
        assert {(state.ports[port].vlan, state.ports[port].mtu) for port in uplinks} == {(None, 9214)}
        line.links_down = frozenset(uplinks[:1])
        state, sessions = driver(line).read_back(), driver(line).sessions()
        assert sessions == dict.fromkeys(uplinks[1:], "established")
        assert [finding.where for finding in verify_trunks(wanted, state, sessions)] == [f"{name} {uplinks[0]}"]


def routed() -> tuple[str, SwitchConfig]:
    """The leaf of the pod: all its uplinks go to one AS, and BFD has the timers that EOS has anyway."""
    site, leaf, _ = pod("arista_eos", "unnumbered")
    return leaf, switch_config(site, leaf)


def test_neighbours_in_one_line_and_default_timers_are_no_drift(ledger: Ledger) -> None:
    leaf, wanted = routed()
    line = EosLine(name=leaf)
    apply(line, wanted, ledger)
    shown = line.type("show running-config")
    assert re.findall(r"neighbor interface \S+ ", shown) == ["neighbor interface Et17/1-32/5 "]
    assert "router bfd" not in shown
    assert differences(driver(line), wanted, ledger) == []
    assert not apply(line, wanted, ledger, check=True).changed
    line.running.tree["router bfd"] = {"interval 100 min-rx 100 multiplier 3 default": {}}
    [found] = differences(driver(line), wanted, ledger)
    assert found.command == "router bfd / interval 300 min-rx 300 multiplier 3 default"


def test_a_run_killed_while_loading_neighbours_is_recognised(ledger: Ledger, tmp_path: Path) -> None:
    leaf, wanted = routed()
    whole = EosLine(name=leaf)
    apply(whole, wanted, Ledger.open(tmp_path / "whole.sqlite"))
    line = EosLine(name=leaf, dies_at=whole.sent.index("end"))
    with pytest.raises(SwitchUnreachableError):
        apply(line, wanted, ledger)
    line.dies_at = None
    result = apply(line, wanted, ledger)
    assert (result.changed, result.note) == (True, "dropped the candidate of an interrupted run")
    assert settled(line)


def test_a_run_whose_lines_change_nothing_saves_what_a_killed_one_confirmed(
    config: SwitchConfig, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = EosLine()
    apply(line, config, ledger)
    line.startup = {}
    monkeypatch.setattr(AristaEos, "missing", lambda _driver, _commands, _revision=None: ["interface Ethernet1/1"])
    assert not apply(line, config, ledger).changed
    assert line.startup == line.running.tree
    assert settled(line)


@pytest.mark.parametrize(
    ("ports", "shown", "apart"),
    [
        (["1", "2", "4"], "Et1-2,4", ["1", "2", "4"]),
        (["1/1", "2/1", "2/3", "5/1"], "Et1/1-2/3,5/1", ["1/1", "2/1", "2/3", "5/1"]),
        (["1/1", "1/2", "2/1"], "Et1/1-2", ["1/1", "1/2"]),
        (["49/1", "50/1", "51/1"], "Ethernet50/1", ["50/1"]),
    ],
)
def test_a_line_of_neighbours_stands_for_each(ports: list[str], shown: str, apart: list[str]) -> None:
    head = "".join(f"interface Ethernet{port}\n" for port in ports) + "router bgp 1\n"
    text = f"{head}   neighbor interface {shown} peer-group UNDERLAY remote-as 65001\n"
    lines = [f"   neighbor interface Ethernet{port} peer-group UNDERLAY remote-as 65001\n" for port in apart]
    assert eos_read.neighbours_apart(text) == head + "".join(lines)
    other = "   neighbor interface Vl4093 peer-group MLAG remote-as 65102\n"
    assert eos_read.neighbours_apart(other) == other


def test_a_gateway_with_another_mtu_than_its_ports_is_a_finding(ledger: Ledger) -> None:
    site, leaf, _ = pod("arista_eos", "numbered")
    line, wanted = EosLine(name=leaf), switch_config(site, leaf)
    assert wanted.gateways
    apply(line, wanted, ledger)
    assert verify_config(wanted, driver(line).read_back()) == []
    vlan = wanted.gateways[0].vlan
    del line.running.tree[f"interface Vlan{vlan}"]["mtu 9214"]
    found = verify_config(wanted, driver(line).read_back())
    assert [(one.code, str(one.where), one.expected, one.actual) for one in found] == [
        ("switch-port-mtu", f"{leaf} Vlan{vlan}", "9214 bytes", "1500 bytes")
    ]


def test_neighbours_of_another_form_are_no_sessions() -> None:
    assert eos_read.neighbours({}) == eos_read.neighbours({"vrfs": {"default": {"peers": {}}}}) == {}
    peers = [{"peerAddress": "10.0.0.1", "state": "Active"}, {"peerAddress": "fe80::1%Et1/1", "ifName": "Ethernet1/1"}]
    found = eos_read.neighbours({"vrfs": {"default": {"peerList": peers}}})
    assert found == {"10.0.0.1": "active", "Ethernet1/1": "none"}
