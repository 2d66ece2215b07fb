"""Refusals of a SONiC switch that day 0 left in a state which rackready does not change itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rackready.design.switches import Breakout, PortConfig, SwitchConfig
from rackready.drivers.switch.base import SwitchError
from rackready.drivers.switch.sonic_text import Config
from rackready.drivers.switch.sonic_wanted import covers, metadata
from rackready.model.problems import Problem

_BGPCFGD = frozenset({"", "separated", "unified"})
"""Modes of docker_routing_config_mode in which CONFIG_DB makes FRR's configuration (sonic-buildimage @086b03bd70)."""
Modes = Callable[[str], list[str]]
"""Port -> its breakout modes, as platform.json writes them; none where it cannot be read."""


def refuse(config: SwitchConfig, have: Config, modes: Modes) -> None:
    """Raise SwitchError with everything that day 0 left out, or that stands in the way."""
    split = [problem for breakout in config.breakouts for problem in _split(config.name, breakout, have, modes)]
    found = [
        *split,
        *(problem for port in config.ports for problem in _port(config, port, have, split=bool(split))),
        *_routing(config, have),
    ]
    if found:
        raise SwitchError.of(found)


def _split(switch: str, breakout: Breakout, have: Config, modes: Modes) -> Iterator[Problem]:
    """Breakout is day 0: when it fails half-way nothing takes it back (sonic-utilities issue 964)."""
    head = f"{breakout.ways}x{breakout.speed}G"
    mode = have.get("BREAKOUT_CFG", {}).get(breakout.port, {}).get("brkout_mode", "")
    if set(breakout.sub_ports) <= set(have["PORT"]) and (not mode or mode.startswith(head)):
        return
    text = next((one for one in modes(breakout.port) if one.startswith(head)), head)
    yield Problem.of(
        f"{switch} {breakout.port}",
        "breakout",
        f"Run `sudo config interface breakout {breakout.port} '{text}' -y -l`, then `sudo config save -y`.",
        expected=head,
        actual=mode or "not split",
    )


def _port(config: SwitchConfig, port: PortConfig, have: Config, *, split: bool) -> Iterator[Problem]:
    where = f"{config.name} {port.name}"
    if port.name not in have["PORT"]:
        if not split:  # else its breakout is the problem
            there = f"{len(have['PORT'])} others"
            yield Problem.of(where, "port", "Compare with `show interfaces status`.", expected="there", actual=there)
        return
    if port.peer and not port.address:
        yield Problem.of(
            where,
            f"the link to {port.peer}",
            "Set networks.underlay.links: numbered, with a pool: SONiC's bgpcfgd knows neighbours by address only.",
            expected="numbered (/31)",
            actual="unnumbered",
        )
    yield from _in_the_way(config, port, have)
    for queue in (0, config.qos.priority, config.qos.cnp_priority):
        for key in have.get("QUEUE", {}):
            if covers(key, port.name, queue) and key != f"{port.name}|{queue}":
                yield Problem.of(
                    where, f"QUEUE|{key}", "Write its queues as single entries.", expected=f"queue {queue} alone"
                )


def _in_the_way(config: SwitchConfig, port: PortConfig, have: Config) -> Iterator[Problem]:
    """Refuse a routed port that should be in a VLAN, another untagged VLAN, and addresses that nobody asked for."""
    where = f"{config.name} {port.name}"
    ours = {port.name, f"{port.name}|{port.address}"} if port.address else set()
    for key in have.get("INTERFACE", {}):
        if key.split("|")[0] == port.name and key not in ours:
            _, _, address = key.partition("|")
            command = f"config interface ip remove {port.name} {address or 'ADDRESS'}"
            yield Problem.of(where, f"INTERFACE|{key}", f"Run `sudo {command}`.", expected="none")
    for key, fields in have.get("VLAN_MEMBER", {}).items():
        vlan, _, member = key.partition("|")
        if member == port.name and fields.get("tagging_mode") == "untagged" and vlan != f"Vlan{port.vlan}":
            yield Problem.of(
                where,
                f"VLAN_MEMBER|{key}",
                f"Run `sudo config vlan member del {vlan.removeprefix('Vlan')} {port.name}`.",
                expected=f"untagged in Vlan{port.vlan}" if port.vlan else "in no VLAN",
            )


def _routing(config: SwitchConfig, have: Config) -> Iterator[Problem]:
    if config.routing is None:
        return
    found, where = metadata(have), f"{config.name} DEVICE_METADATA|localhost"
    mode, framework, asn = (
        found.get(name, "") for name in ("docker_routing_config_mode", "frr_mgmt_framework_config", "bgp_asn")
    )
    again = "Correct it in /etc/sonic/config_db.json, then run `sudo config reload -y`: every link drops."
    if mode not in _BGPCFGD:
        yield Problem.of(where, "docker_routing_config_mode", again, expected="separated or unified", actual=mode)
    if framework == "true":
        yield Problem.of(where, "frr_mgmt_framework_config", again, expected="false", actual=framework)
    if asn not in {"", "None", str(config.routing.asn)}:
        yield Problem.of(where, "bgp_asn", again, expected=str(config.routing.asn), actual=asn)
