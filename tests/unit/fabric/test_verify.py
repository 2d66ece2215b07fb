"""What a switch and a host say of themselves, compared with the site and with each other: exact words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.design.switches import Gateway, SwitchConfig, switch_config
from rackready.drivers.remote import Answer
from rackready.drivers.switch import findings
from rackready.drivers.switch.agreement import _End, intents, judge, parse_host
from rackready.drivers.switch.base import PortState, RoceState, SwitchError, SwitchRevertedError, SwitchState
from rackready.drivers.switch.configure import _each
from rackready.drivers.switch.nvue_text import (
    compact,
    expand_commands,
    expand_names,
    in_force,
    is_no_difference,
    parse_ports,
    parse_revisions,
    parse_roce,
    read_json,
)
from rackready.drivers.switch.session import SwitchUnreachableError, split_output
from rackready.drivers.switch.verify import verify_config, verify_links
from rackready.model.outcome import Outcome
from rackready.model.phase import FINDINGS, NodeResult

ROOT = Path(__file__).resolve().parents[3]
MAP = {dscp: dscp // 8 for dscp in range(64)}
ROCE = RoceState(mode="lossless", pfc=frozenset({3}), trusts_dscp=True, dscp_priority=MAP, ecn=frozenset({3}))
SITE = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)
INTENTS = intents(SITE, "node01")


def port_state(mtu: int, vlan: int | None, *, admin: bool = True, link: bool = True) -> PortState:
    return PortState(admin, link, mtu, vlan)


def linked(mtu: int, vlan: int | None) -> PortState:
    return replace(port_state(mtu, vlan), speed=400, fec="rs")


@pytest.fixture(scope="module")
def config() -> SwitchConfig:
    return switch_config(SITE, "leaf01")


@pytest.fixture
def state(config: SwitchConfig) -> SwitchState:
    return SwitchState({port.name: linked(port.mtu, port.vlan) for port in config.ports}, ROCE)


def said(findings: list[object]) -> list[str]:
    return [str(finding).split(". ")[0] for finding in findings]


def test_a_switch_as_declared_has_no_finding(config: SwitchConfig, state: SwitchState) -> None:
    assert verify_config(config, state) == []
    assert verify_links(config, state) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"vlan": 902}, "leaf01 swp1: access VLAN - Expected: 901 Actual: 902"),
        ({"vlan": None}, "leaf01 swp1: access VLAN - Expected: 901 Actual: none"),
        ({"mtu": 1500}, "leaf01 swp1: MTU - Expected: 9216 bytes Actual: 1500 bytes"),
        ({"admin_up": False}, "leaf01 swp1: port switched off - Expected: admin up Actual: admin down"),
    ],
)
def test_a_port_that_differs_is_named(
    config: SwitchConfig, state: SwitchState, change: dict[str, object], text: str
) -> None:
    state.ports["swp1"] = replace(state.ports["swp1"], **change)
    assert said(verify_config(config, state)) == [text]


def test_a_port_that_is_not_listed_is_named(config: SwitchConfig, state: SwitchState) -> None:
    del state.ports["swp2"]
    assert said(verify_config(config, state)) == [
        "leaf01 swp2: port not there - Expected: cabled to node01 enp64s0np0 Actual: the switch does not list it"
    ]


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({"mode": "off"}, ["leaf01: RoCE - Expected: on, mode lossless Actual: off"]),
        ({"mode": "lossy"}, ["leaf01: RoCE - Expected: on, mode lossless Actual: lossy"]),
        ({"pfc": frozenset()}, ["leaf01: PFC priorities - Expected: 3 Actual: none"]),
        ({"pfc": frozenset({3, 4})}, ["leaf01: PFC priorities - Expected: 3 Actual: 3,4"]),
        ({"trusts_dscp": False}, ["leaf01: trust - Expected: dscp Actual: not dscp"]),
        ({"dscp_priority": MAP | {26: 0}}, ["leaf01: priority of DSCP 26 - Expected: 3 Actual: 0"]),
    ],
)
def test_roce_that_differs_is_named(
    config: SwitchConfig, state: SwitchState, change: dict[str, object], texts: list[str]
) -> None:
    assert said(verify_config(config, replace(state, roce=replace(ROCE, **change)))) == texts


def test_a_link_that_is_down_names_both_ends(config: SwitchConfig, state: SwitchState) -> None:
    state.ports["swp7"] = replace(state.ports["swp7"], link_up=False)
    assert said(verify_links(config, state)) == [
        "leaf01 swp7: link to node02 enp79s0np0 (rail 3) - Expected: up Actual: down"
    ]
    assert verify_links(config, state, {"node01"}) == []


def document(**change: object) -> str:
    base = {
        "trust": "dscp",
        "pfc": [3],
        "mtu": 9000,
        "dscp_priority": {str(key): value for key, value in MAP.items()},
        "pause": False,
        "ecn": True,
        "rate_gbps": 400,
        "fec": "rs",
        "cm_mode": "v2",
        "cm_tos": 106,
        "traffic_class": 106,
        "gid_types": ["IB/RoCE v1", "RoCE v2"],
        "gid_index": 3,
    }
    names = ("enp24s0np0", "enp64s0np0", "enp79s0np0", "enp94s0np0")
    return json.dumps(
        {
            "format": "rackready/roce/v2",
            "complete": True,
            "interfaces": [{"netdev": name, "problems": [], "state": base | change} for name in names],
        }
    )


def answer(stdout: str, failure: str = "") -> Answer:
    return Answer(0 if stdout else None, stdout, "", 1.0, failure=failure)


def test_a_node_whose_ends_agree_passes(config: SwitchConfig, state: SwitchState) -> None:
    result = judge("node01", [_End(config, state)], parse_host("node01", answer(document())), INTENTS)
    assert (result.outcome, result.message) == (Outcome.PASS, "node01: every cable has its link and both ends agree")


def test_what_a_node_cannot_read_is_named_with_its_cause_and_judged_by_nobody(
    config: SwitchConfig, state: SwitchState
) -> None:
    host = parse_host("node01", answer(document(ecn=None, unread="CNPs: kernel lockdown (integrity) refuses debugfs")))
    result = judge("node01", [_End(config, state)], host, INTENTS)
    assert result.outcome is Outcome.PASS
    assert result.message == (
        "node01: every cable has its link and both ends agree; not reported: ECN of node01, "
        "on node01 CNPs: kernel lockdown (integrity) refuses debugfs"
    )


def test_a_half_lossless_link_fails(config: SwitchConfig, state: SwitchState) -> None:
    result = judge("node01", [_End(config, state)], parse_host("node01", answer(document(pfc=[]))), INTENTS)
    assert result.outcome is Outcome.FAIL
    assert "node01 enp94s0np0 and leaf01 swp4: PFC priorities differ" in result.message
    assert [(found["code"], found["where"]) for found in result.data[FINDINGS]] == [
        ("cable-pfc-differs", f"node01 {port.netdev} and leaf01 {port.name}")
        for port in config.ports
        if port.node == "node01"
    ]


@pytest.mark.parametrize(
    ("seen", "actual"),
    [({901: 9216}, []), (None, []), ({901: 1500}, ["1500 bytes"]), ({902: 9216}, ["not listed"])],
    ids=["as the ports", "not reported", "smaller", "not there"],
)
def test_a_gateway_passes_what_its_ports_pass(
    config: SwitchConfig, state: SwitchState, seen: dict[int, int] | None, actual: list[str]
) -> None:
    routed = replace(config, gateways=(Gateway(901, "192.168.1.1/24"),))
    found = verify_config(routed, replace(state, gateway_mtu=seen))
    assert [(str(one.where), one.actual) for one in found] == [("leaf01 Vlan901", text) for text in actual]
    assert all(one.nodes == [port.node for port in config.ports if port.vlan == 901] for one in found)


CODES: list[tuple[str, dict[str, object], dict[str, object]]] = [
    ("switch-port-vlan", {"vlan": 902}, {}),
    ("switch-port-mtu", {"mtu": 1500}, {}),
    ("switch-port-off", {"admin_up": False}, {}),
    ("switch-link-down", {"link_up": False}, {}),
    ("switch-roce-off", {}, {"mode": "off"}),
    ("switch-dscp-trust", {}, {"trusts_dscp": False}),
    ("switch-pfc-priorities", {}, {"pfc": frozenset({4})}),
    ("switch-dscp-priority", {}, {"dscp_priority": MAP | {26: 0}}),
]


@pytest.mark.parametrize(("code", "port", "roce"), CODES)
def test_a_difference_of_a_switch_has_its_code(
    config: SwitchConfig, state: SwitchState, code: str, port: dict[str, object], roce: dict[str, object]
) -> None:
    state.ports["swp1"] = replace(state.ports["swp1"], **port)
    changed = replace(state, roce=replace(ROCE, **roce))
    assert [found.code for found in [*verify_config(config, changed), *verify_links(config, changed)]] == [code]


def test_what_has_no_place_to_compare_has_its_code(config: SwitchConfig, state: SwitchState) -> None:
    host = parse_host("node01", answer(document()))
    assert isinstance(host, dict)
    del host["enp24s0np0"]
    ends = [_End(config, state)]
    judged = [judge("node01", ends, host, INTENTS), judge("node09", ends, {}, INTENTS)]
    judged.append(judge("node01", ends, parse_host("node01", answer("")), INTENTS))
    assert [[found["code"] for found in one.data[FINDINGS]] for one in judged] == [
        ["cable-interface-missing"],
        ["fabric-no-cable"],
        ["fabric-node-unread"],
    ]
    del state.ports["swp2"]
    assert verify_config(config, state)[0].code == "switch-port-missing"


def test_findings_of_a_refused_switch_are_in_its_result() -> None:
    found = findings.PORT_MTU.found("leaf01 swp1", "9216 bytes", "1500 bytes")

    def refuse(_name: str) -> NodeResult:
        raise SwitchRevertedError("in any words", findings=[found])

    (result,) = _each(["leaf01"], refuse).values()
    assert (result.outcome, [one["code"] for one in result.data[FINDINGS]]) == (Outcome.ERROR, ["switch-port-mtu"])


@pytest.mark.parametrize(
    ("ends_state", "text", "failure", "message"),
    [
        (
            True,
            "",
            "node01: SSH refused",
            (
                "node01: reading of its compute interfaces - Expected: a whole document of roce.py "
                "Actual: node01: SSH refused."
            ),
        ),
        (
            True,
            document()[:-20],
            "",
            "node01: reading of its compute interfaces - Expected: a whole document of roce.py Actual: ",
        ),
        (False, document(), "", "leaf01: silent"),
    ],
)
def test_what_could_not_be_read_is_an_error(
    config: SwitchConfig, state: SwitchState, *, ends_state: bool, text: str, failure: str, message: str
) -> None:
    end = _End(config, state) if ends_state else _End(config, None, "leaf01: silent")
    result = judge("node01", [end], parse_host("node01", answer(text, failure)), INTENTS)
    assert result.outcome is Outcome.ERROR
    assert result.message.startswith(message)


def test_a_reading_that_takes_too_long_is_said_to(config: SwitchConfig, state: SwitchState) -> None:
    late = Answer(None, "", "setsid: child 4652 did not exit normally: Success", 245.0, timed_out=True)
    result = judge("node01", [_End(config, state)], parse_host("node01", late), INTENTS)
    what = "node01: reading of its compute interfaces - Expected: a whole document of roce.py"
    expected = f"{what} Actual: no answer within 240 s. Run `rackready fabric` for the node."
    assert (result.outcome, result.message) == (Outcome.ERROR, expected)


def test_a_node_without_cables_is_never_a_pass(config: SwitchConfig, state: SwitchState) -> None:
    assert judge("node09", [_End(config, state)], {}, INTENTS).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("swp1", ["swp1"]),
        ("swp1-3", ["swp1", "swp2", "swp3"]),
        ("swp1,swp5-6", ["swp1", "swp5", "swp6"]),
        ("901-902", ["901", "902"]),
        ("901,903-904", ["901", "903", "904"]),
        ("swp1-2,32", ["swp1", "swp2", "swp32"]),
        ("swp1,6-7,9", ["swp1", "swp6", "swp7", "swp9"]),
        ("vlan200,300", ["vlan200", "vlan300"]),
        ("swp1-2,4,swp1s0-1,3,swp59s0", ["swp1", "swp2", "swp4", "swp1s0", "swp1s1", "swp1s3", "swp59s0"]),
        ("swp01", ["swp01"]),
        ("swp1s0-1", ["swp1s0", "swp1s1"]),
        ("lo", ["lo"]),
    ],
)
def test_ranges(text: str, names: list[str]) -> None:
    assert expand_names(text) == names


NEIGHBOUR = "nv set vrf default router bgp neighbor"


def test_neighbours_are_read_as_lists_and_sent_one_by_one() -> None:
    singles = [f"{NEIGHBOUR} {port} type unnumbered" for port in ("swp59s0", "swp59s1", "swp61s0")]
    assert expand_commands(f"{NEIGHBOUR} swp59s0-1,swp61s0 type unnumbered") == expand_commands("\n".join(singles))
    assert compact(singles) == singles
    numbered = f"{NEIGHBOUR} 172.16.1.4 type numbered"
    assert expand_commands(numbered) == {tuple(numbered.split())}


def test_a_breakout_with_more_words_is_the_one_that_is_wanted() -> None:
    have = expand_commands("nv set interface swp6-9,28 link breakout 2x lanes-per-port 4")
    assert in_force(expand_commands("nv set interface swp6,28 link breakout 2x"), have)
    assert not in_force(expand_commands("nv set interface swp6 link breakout 4x"), have)
    assert not in_force(expand_commands("nv set interface swp5 link breakout 2x"), have)
    assert not in_force(expand_commands("nv set interface swp6 link"), have)


def test_a_vlan_with_a_vni_is_the_one_that_is_wanted() -> None:
    """Cumulus Linux 5.15 prints no bare `vlan 20` then."""
    have = expand_commands("nv set bridge domain br_default vlan 20 vni 20\nnv set interface vlan30 vlan 30")
    assert in_force(expand_commands("nv set bridge domain br_default vlan 20"), have)
    assert not in_force(expand_commands("nv set bridge domain br_default vlan 2"), have)
    assert not in_force(expand_commands("nv set bridge domain br_default vlan 20 vni 30"), have)
    assert not in_force(expand_commands("nv set bridge domain br_default"), have)


BANNER = '####\n#  You\'re logged in to: "leaf01"\n  nv set interface swp1 link mtu 1500\n####\n'


def test_a_banner_of_several_lines_is_one_value() -> None:
    """As the core switch in NVIDIA's ERA guide has it: between other settings."""
    quoted = BANNER.replace("'", "'\"'\"'")
    text = f"nv set evpn state enabled \nnv set system message post-login '{quoted}'\n  # don't\nnv set qos roce \n"
    assert expand_commands(text) == {
        ("nv", "set", "evpn", "state", "enabled"),
        ("nv", "set", "system", "message", "post-login", BANNER),
        ("nv", "set", "qos", "roce"),
    }


def test_compact_and_expand_are_inverse() -> None:
    lines = [f"nv set interface swp{port} link mtu 9216" for port in range(1, 49)] + [
        "nv set bridge domain br_default vlan 901",
        "nv set interface swp1 description 'a b'",
    ]
    joined = compact(lines)
    assert len(joined) == 3
    assert expand_commands("\n".join(joined)) == expand_commands("\n".join(lines))
    assert max(map(len, compact([f"nv set interface swp{port} link mtu 9216" for port in range(1000)]))) <= 500


def test_what_a_terminal_shows_is_split() -> None:
    raw = (
        'cumulus@leaf01:mgmt:~$ echo __rb; nv show x; echo __rc=$?\r\n__rb\r\n\x1b[1m{"a": '
        "1}\x1b[0m\r\n__rc=0\r\ncumulus@leaf01:mgmt:~$ "
    )
    assert split_output("leaf01", "nv show x", raw) == (0, '{"a": 1}\n')
    with pytest.raises(
        SwitchUnreachableError,
        match=r"leaf01: `nv show x` - Expected: its output and exit code Actual: __rb {\. The login shell must be bash",
    ):
        split_output("leaf01", "nv show x", "__rb\n{")


def test_no_json_is_said() -> None:
    with pytest.raises(SwitchError) as caught:
        read_json("leaf01", "nv show qos roce -o json", "Error: Could not connect to nvued.\n")
    assert str(caught.value) == (
        "leaf01: `nv show qos roce -o json` - Expected: JSON Actual: Error: Could not connect to nvued. "
        "Log in and run it; the NVUE service may be down (`systemctl status nvued`)."
    )
    assert read_json("leaf01", "x", 'Warning: slow\n{"a": 1}') == {"a": 1}


def test_revisions_and_differences() -> None:
    found = parse_revisions(
        {"10": {"state": "pending", "user": "maria"}, "2": {"state": "applied"}, "applied": {"state": "applied"}}
    )
    assert [(item.id, item.state, item.user) for item in found] == [("2", "applied", ""), ("10", "candidate", "maria")]
    assert [is_no_difference(text) for text in ("", "No config diff.\n", "{}", "- set:\n  x")] == [
        True,
        True,
        True,
        False,
    ]


def test_ports_and_roce_of_both_releases() -> None:
    applied = expand_commands(
        "nv set interface swp1-2 bridge domain br_default access 901\n"
        "nv set interface swp1 qos pfc-watchdog state enable"
    )
    ports = parse_ports(
        {
            "swp1": {"link": {"state": {"up": {}}, "mtu": 9216, "speed": "400G", "fec": "rs"}},
            "swp2": {"link": {"admin-status": "up", "oper-status": "down", "mtu": 9216}},
            "eth0": {},
        },
        applied,
    )
    assert ports == {
        "swp1": replace(linked(9216, 901), watchdog=True),
        "swp2": replace(port_state(9216, 901, link=False), watchdog=False),
        "eth0": replace(port_state(0, None, admin=False, link=False), watchdog=False),
    }
    rows = {"3": {"dscp": "24,25,26", "switch-prio": 3}}
    pfc = {"pfc-priority": 3, "rx-enabled": "enabled", "tx-enabled": "enabled"}
    for key, value in (("state", "enabled"), ("enable", "on")):
        roce = parse_roce(
            {key: value, "mode": "lossless", "pfc": pfc, "trust": {"trust-mode": "pcp,dscp"}, "prio-map": rows}
        )
        assert roce == RoceState(
            mode="lossless", pfc=frozenset({3}), trusts_dscp=True, dscp_priority={24: 3, 25: 3, 26: 3}
        )
    assert parse_roce({}).mode == "off"
    classes = {str(prio): {"switch-prio": prio, "traffic-class": prio if prio in {3, 6} else 0} for prio in range(8)}
    marking = {"congestion-control": {"enabled-tc": "0,3"}, "tc-map": classes}
    assert parse_roce(marking).ecn == frozenset({0, 1, 2, 3, 4, 5, 7})
    assert parse_roce({"tc-map": classes}).ecn is None
    assert parse_roce({"state": "enabled", "pfc": {**pfc, "tx-enabled": "disabled"}}).pfc == frozenset()
