"""Both ends of a cable with one setting wrong at one end: that cable and that setting are reported, nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.ecn import EcnThresholds
from rackready.design.site import load_site
from rackready.design.switches import PortConfig, SwitchConfig, switch_config
from rackready.drivers.switch.agreement import compare, intents
from rackready.drivers.switch.base import PortState, RoceState, SwitchState
from rackready.drivers.switch.ends import HostQos, Intent
from rackready.model.outcome import Finding

ROOT = Path(__file__).resolve().parents[3]
SITE = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)
MAP = {dscp: dscp // 8 for dscp in range(64)}
ROCE = RoceState("lossless", frozenset({3}), trusts_dscp=True, dscp_priority=MAP, ecn=frozenset({0, 3}))
HOST = HostQos(
    "dscp",
    frozenset({3}),
    9000,
    MAP,
    ecn=True,
    speed=400,
    fec="rs",
    cm_version="v2",
    cm_tos=106,
    verbs_tos=106,
    gid_types=("IB/RoCE v1", "RoCE v2"),
    gid_index=3,
)
CABLE = "node01 enp64s0np0 and leaf01 swp2"


def rs(config: SwitchConfig) -> SwitchConfig:
    """The switch, with the FEC that a site states."""
    return replace(config, ports=tuple(replace(port, fec="rs") for port in config.ports))


CONFIG = rs(switch_config(SITE, "leaf01"))
PORTS = [port for port in CONFIG.ports if port.node == "node01"]
INTENTS = {name: replace(intent, gid_index=3) for name, intent in intents(SITE, "node01").items()}


class Link:
    """All cables of node01 to leaf01, healthy; ``host`` and ``switch`` change the ends of the one at swp2."""

    def __init__(self) -> None:
        ports = {port.name: PortState(True, True, port.mtu, port.vlan, 400, "rs") for port in CONFIG.ports}  # noqa: FBT003
        self.state = SwitchState(ports, ROCE)
        self.hosts = {port.netdev: HOST for port in PORTS}

    def host(self, **change: object) -> Link:
        self.hosts["enp64s0np0"] = replace(HOST, **change)  # type: ignore[arg-type]
        return self

    def port(self, **change: object) -> Link:
        self.state.ports["swp2"] = replace(self.state.ports["swp2"], **change)  # type: ignore[arg-type]
        return self

    def roce(self, **change: object) -> Link:
        self.state.port_roce["swp2"] = replace(ROCE, **change)  # type: ignore[arg-type]
        return self

    def compared(self, intended: dict[str, Intent] | None = None) -> tuple[list[Finding], list[str]]:
        cables: list[tuple[PortConfig, HostQos | None]] = [(port, self.hosts[port.netdev]) for port in PORTS]
        return compare("node01", CONFIG, self.state, cables, intended or INTENTS)


def words(found: Finding) -> str:
    return f"{found.what} - Expected: {found.expected} Actual: {found.actual}"


def test_ends_that_agree_have_no_finding_and_nothing_is_unknown() -> None:
    assert Link().compared() == ([], [])


MUTATIONS = [
    (
        "host",
        {"mtu": 1500},
        "cable-mtu-differs",
        "MTU",
        "host 9000, switch 9216",
        "host 1500, switch 9216; wrong: host",
    ),
    (
        "port",
        {"mtu": 1500},
        "cable-mtu-differs",
        "MTU",
        "host 9000, switch 9216",
        "host 9000, switch 1500; wrong: switch",
    ),
    (
        "host",
        {"pfc": frozenset()},
        "cable-pfc-differs",
        "PFC priorities differ",
        "3 at both ends",
        "host none, switch 3; wrong: host",
    ),
    (
        "roce",
        {"pfc": frozenset({4})},
        "cable-pfc-differs",
        "PFC priorities differ",
        "3 at both ends",
        "host 3, switch 4; wrong: switch",
    ),
    (
        "host",
        {"dscp_priority": MAP | {26: 4}},
        "cable-dscp-differs",
        "DSCP 26",
        "3 at both ends",
        "host 4, switch 3; wrong: host",
    ),
    (
        "roce",
        {"dscp_priority": MAP | {48: 0}},
        "cable-dscp-differs",
        "DSCP 48",
        "6 at both ends",
        "host 6, switch 0; wrong: switch",
    ),
    (
        "roce",
        {"dscp_priority": MAP | {24: 0}},
        "cable-dscp-differs",
        "DSCP 24",
        "the same at both ends",
        "host 3, switch 0; wrong: host or switch",
    ),
    (
        "host",
        {"trust": "pcp"},
        "cable-trust-differs",
        "trust differs",
        "dscp at both ends",
        "host pcp, switch dscp; wrong: host",
    ),
    (
        "roce",
        {"trusts_dscp": False},
        "cable-trust-differs",
        "trust differs",
        "dscp at both ends",
        "host dscp, switch not dscp; wrong: switch",
    ),
    ("host", {"ecn": False}, "cable-ecn-differs", "ECN", "on at both ends", "host off, switch on; wrong: host"),
    (
        "roce",
        {"ecn": frozenset({0})},
        "cable-ecn-differs",
        "ECN",
        "on at both ends",
        "host on, switch off; wrong: switch",
    ),
    (
        "host",
        {"speed": 200},
        "cable-speed-differs",
        "rate",
        "400 Gb/s at both ends",
        "host 200 Gb/s, switch 400 Gb/s; wrong: host",
    ),
    (
        "port",
        {"speed": 100},
        "cable-speed-differs",
        "rate",
        "400 Gb/s at both ends",
        "host 400 Gb/s, switch 100 Gb/s; wrong: switch",
    ),
    ("port", {"watchdog": False}, "switch-watchdog-off", "PFC watchdog", "on", "switch off; wrong: switch"),
    ("host", {"fec": "off"}, "cable-fec-differs", "FEC", "rs at both ends", "host off, switch rs; wrong: host"),
    ("port", {"fec": "fc"}, "cable-fec-differs", "FEC", "rs at both ends", "host rs, switch fc; wrong: switch"),
    ("host", {"global_pause": True}, "cable-global-pause", "global pause", "off", "host on; wrong: host"),
    ("host", {"cm_tos": 0}, "cable-tos-differs", "ToS", "106", "host 0; wrong: host"),
    ("host", {"verbs_tos": 96}, "cable-tos-differs", "ToS", "106", "host 96; wrong: host"),
    ("host", {"cm_version": "v1"}, "cable-gid-differs", "GID", "v2 for rdma_cm", "host v1 for rdma_cm; wrong: host"),
    (
        "host",
        {"gid_types": ("IB/RoCE v1",), "gid_index": None},
        "cable-gid-differs",
        "GID",
        "RoCE v2",
        "host IB/RoCE v1; wrong: host",
    ),
    ("host", {"gid_types": (), "gid_index": None}, "cable-gid-differs", "GID", "RoCE v2", "host none; wrong: host"),
    (
        "host",
        {"gid_index": 5},
        "cable-gid-differs",
        "GID",
        "RoCE v2 at index 3",
        "host RoCE v2 at index 5; wrong: host",
    ),
]


@pytest.mark.parametrize(("end", "change", "code", "what", "expected", "actual"), MUTATIONS)
def test_one_wrong_setting_is_one_finding_of_that_cable(
    end: str, change: dict[str, object], code: str, what: str, expected: str, actual: str
) -> None:
    link: Link = getattr(Link(), end)(**change)
    findings, unknown = link.compared()
    told = [(found.code, found.where, found.what, found.expected, found.actual) for found in findings]
    assert told == [(code, CABLE, what, expected, actual)]
    assert unknown == []


def test_a_watchdog_that_is_on_or_not_reported_is_no_finding() -> None:
    for told in (True, None):
        assert Link().port(watchdog=told).compared() == ([], [])


def test_thresholds_that_somebody_changed_are_one_finding_of_the_switch() -> None:
    link = Link()
    link.state = replace(link.state, roce=replace(ROCE, thresholds=(40_000, 1_499_463)))
    (found,), unknown = link.compared()
    assert (found.code, str(found.where), found.expected, found.actual, unknown) == (
        "switch-ecn-thresholds",
        "leaf01 and its 4 cables to node01",
        "150000 to 1500000 bytes",
        "switch 40000 to 1499463 bytes; wrong: switch",
        [],
    )


@pytest.mark.parametrize("reported", [(149_996, 1_499_463), (159_744, 1_499_463), None], ids=["NVUE", "chip", "none"])
def test_thresholds_of_the_preset_are_no_finding(reported: tuple[int, int] | None) -> None:
    link = Link()
    link.state = replace(link.state, roce=replace(ROCE, thresholds=reported))
    assert link.compared() == ([], [])


def test_thresholds_that_the_site_sets_are_not_those_of_the_preset() -> None:
    link = Link()
    link.state = replace(link.state, roce=replace(ROCE, thresholds=(40_000, 1_499_463)))
    own = EcnThresholds(40_000, 1_500_000, 400)
    cables: list[tuple[PortConfig, HostQos | None]] = [(replace(port, ecn=own), HOST) for port in PORTS]
    assert compare("node01", CONFIG, link.state, cables, INTENTS) == ([], [])


UNKNOWN = [
    ("host", {"ecn": None}, "ECN of node01"),
    ("roce", {"ecn": None}, "ECN of leaf01"),
    ("host", {"speed": None}, "speed of node01"),
    ("port", {"speed": None}, "speed of leaf01"),
    ("host", {"fec": None}, "FEC of node01"),
    ("port", {"fec": None}, "FEC of leaf01"),
    ("host", {"cm_version": None}, "RoCE version of node01"),
    ("host", {"cm_tos": None}, "ToS of node01"),
    ("host", {"gid_types": None, "gid_index": None}, "GID of node01"),
]


@pytest.mark.parametrize(("end", "change", "said"), UNKNOWN)
def test_what_an_end_does_not_report_is_named_and_not_judged(end: str, change: dict[str, object], said: str) -> None:
    link: Link = getattr(Link(), end)(**change)
    assert link.compared() == ([], [said])


def test_an_unknown_end_does_not_hide_that_the_other_is_wrong() -> None:
    findings, unknown = Link().host(fec="off").port(fec=None).compared()
    assert [words(found) for found in findings] == [
        "FEC - Expected: rs at both ends Actual: host off, switch unknown; wrong: host"
    ]
    assert unknown == ["FEC of leaf01"]


def test_without_an_intent_the_ends_are_compared_with_each_other() -> None:
    bare = {name: replace(intent, speed=None, gid_index=None) for name, intent in INTENTS.items()}
    assert Link().host(gid_index=5).compared(bare) == ([], [])
    findings, _ = Link().host(speed=200).compared(bare)
    assert [words(found) for found in findings] == [
        "rate - Expected: the same at both ends Actual: host 200 Gb/s, switch 400 Gb/s; wrong: host or switch"
    ]


def test_a_setting_that_is_wrong_on_the_whole_switch_is_one_finding() -> None:
    link = Link()
    link.state = replace(link.state, roce=replace(ROCE, pfc=frozenset()))
    findings, _ = link.compared()
    assert [(found.where, found.nodes, words(found)) for found in findings] == [
        (
            "leaf01 and its 4 cables to node01",
            ["node01"],
            "PFC priorities differ - Expected: 3 at both ends Actual: host 3, switch none; wrong: switch",
        )
    ]
