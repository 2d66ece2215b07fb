"""Lossless RoCE settings, computed once from the site for hosts and switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.model.problems import Problem, RackreadyError
from rackready.model.site import Fabric, Qos
from rackready.model.software import SoftwareProfile

PRIORITIES = 8
_ECT0 = 2
"""ECN-capable transport, the low two bits of the ToS byte (RFC 3168). Without it a switch drops instead of marking."""

_PRESET_DSCP = {priority: tuple(range(8 * priority, 8 * priority + 8)) for priority in range(PRIORITIES)}
"""NVUE's RoCE preset maps eight consecutive DSCPs to each priority (Cumulus Linux RoCE guide, `nv show qos roce`)."""

_PRESET_PRIORITY = 3
_PRESET_CNP_PRIORITY = 6


class QosUnsupportedError(RackreadyError):
    """The site asks for a mapping that the switch's RoCE preset does not support."""


@dataclass(frozen=True, slots=True)
class QosFacts:
    """Quality of service of the compute fabric. ``pfc`` tells per priority whether it is lossless."""

    dscp: int
    priority: int
    cnp_dscp: int
    cnp_priority: int
    tos: int
    pfc: tuple[bool, ...]

    @property
    def dscp_to_priority(self) -> dict[int, int]:
        """Return DSCP -> priority of data and congestion notification."""
        return {self.dscp: self.priority, self.cnp_dscp: self.cnp_priority}


def qos_facts(qos: Qos) -> QosFacts:
    """Return the settings that hosts and switches must agree on."""
    pfc = tuple(priority == qos.priority for priority in range(PRIORITIES))
    return QosFacts(qos.dscp, qos.priority, qos.cnp_dscp, qos.cnp_priority, qos.dscp << 2 | _ECT0, pfc)


@dataclass(frozen=True, slots=True)
class PresetProblem:
    """One value of ``fabric.qos`` that NVUE's lossless RoCE preset does not support: key, message and hint."""

    key: str
    message: str
    hint: str


def preset_problems(qos: QosFacts) -> list[PresetProblem]:
    """Return every value that NVUE's lossless RoCE preset does not support.

    Its defaults: Cumulus Linux RoCE guide, `nv show qos roce`.
    """
    out = []
    for key, actual, expected in (
        ("priority", qos.priority, _PRESET_PRIORITY),
        ("cnp_priority", qos.cnp_priority, _PRESET_CNP_PRIORITY),
    ):
        if actual != expected:
            message = (
                f"NVUE's lossless RoCE preset does not support this value - Expected: {expected} Actual: {actual}."
            )
            out.append(PresetProblem(key, message, f"Use {expected}."))
    for key, actual, priority in (
        ("dscp", qos.dscp, _PRESET_PRIORITY),
        ("cnp_dscp", qos.cnp_dscp, _PRESET_CNP_PRIORITY),
    ):
        allowed = _PRESET_DSCP[priority]
        if actual not in allowed:
            message = (
                "NVUE's lossless RoCE preset maps it to another priority - "
                f"Expected: {allowed[0]} to {allowed[-1]} Actual: {actual}."
            )
            out.append(PresetProblem(key, message, "Choose one of them."))
    return out


def check_preset(qos: QosFacts) -> None:
    """Refuse values that NVUE's lossless RoCE preset does not support. Raises QosUnsupportedError with every key."""
    problems = preset_problems(qos)
    if problems:
        raise QosUnsupportedError.of(Problem(f"fabric.qos.{item.key}", item.message, item.hint) for item in problems)


def roce_vars(fabric: Fabric, software: SoftwareProfile) -> dict[str, Any]:
    """Return the variables of role host_roce that are the same on every node, plain JSON types only."""
    qos = qos_facts(fabric.qos)
    return {
        "host_roce_package_version": software.doca,
        "host_roce_mtu": fabric.mtu,
        "host_roce_dscp": qos.dscp,
        "host_roce_priority": qos.priority,
        "host_roce_cnp_dscp": qos.cnp_dscp,
        "host_roce_cnp_priority": qos.cnp_priority,
        "host_roce_tos": qos.tos,
    }


def roce_interfaces(facts: NodeFacts) -> list[dict[str, Any]]:
    """Return the compute interfaces of one node in the form of role host_roce."""
    return [
        {
            "netdev": nic.netdev,
            "rdma_device": nic.rdma_device,
            "pci": nic.pci,
            "address": f"{nic.address}/{nic.prefix}",
            "rail": nic.rail,
        }
        for nic in facts.nics
    ]
