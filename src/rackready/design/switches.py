"""The configuration of one switch as plain data: the input of templates, and the reference for a read-back."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.facts import switch_facts
from rackready.design.qos import QosFacts, qos_facts
from rackready.design.switch_systems import system_of
from rackready.model.problems import Problem, RackreadyError
from rackready.model.site import Site

MARK = "(rackready)"
"""End of the description of every port that rackready configures, so that operators and rackready recognize it."""


class QosUnsupportedError(RackreadyError):
    """The site asks for QoS values that the switch's system cannot apply."""


@dataclass(frozen=True, slots=True)
class PortConfig:
    """One cabled port: an access port of its rail's VLAN. ``mtu`` in bytes."""

    name: str
    node: str
    netdev: str
    rail: int
    vlan: int
    mtu: int
    description: str


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """One switch."""

    name: str
    os: str
    vlans: tuple[int, ...]
    ports: tuple[PortConfig, ...]
    qos: QosFacts


def switch_config(site: Site, name: str) -> SwitchConfig:
    """Return the desired state of one switch. Raises KeyError if unknown, QosUnsupportedError for unsupported QoS."""
    facts = switch_facts(site, name)
    qos = qos_facts(site.fabric.qos)
    system = system_of(facts.switch.os)
    problems = system.qos_problems(qos) if system is not None else []
    if problems:
        raise QosUnsupportedError.of(
            Problem.of(f"fabric.qos.{one.key}", one.what, one.hint, expected=one.expected, actual=one.actual)
            for one in problems
        )
    ports = tuple(
        PortConfig(port.port, port.node, port.netdev, port.rail, port.vlan, facts.mtu, f"{port.description} {MARK}")
        for port in facts.ports
    )
    return SwitchConfig(name, facts.switch.os, facts.vlans, ports, qos)
