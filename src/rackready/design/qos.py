"""Lossless RoCE settings, computed once from the site for hosts and switches."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.ecn import EcnThresholds, of_site
from rackready.model.site import Qos

PRIORITIES = 8
_ECT0 = 2
"""ECN-capable transport, the low two bits of the ToS byte (RFC 3168). Without it a switch drops instead of marking."""


@dataclass(frozen=True, slots=True)
class QosFacts:
    """Quality of service of the compute fabric. ``pfc`` tells per priority whether it is lossless."""

    dscp: int
    priority: int
    cnp_dscp: int
    cnp_priority: int
    tos: int
    pfc: tuple[bool, ...]
    ecn: tuple[EcnThresholds, ...] = ()
    """The site's ECN thresholds by speed."""

    @property
    def dscp_to_priority(self) -> dict[int, int]:
        """Return DSCP -> priority of data and congestion notification."""
        return {self.dscp: self.priority, self.cnp_dscp: self.cnp_priority}


def qos_facts(qos: Qos) -> QosFacts:
    """Return the settings that hosts and switches must agree on."""
    pfc = tuple(priority == qos.priority for priority in range(PRIORITIES))
    return QosFacts(
        qos.dscp, qos.priority, qos.cnp_dscp, qos.cnp_priority, qos.dscp << 2 | _ECT0, pfc, of_site(qos.ecn)
    )


@dataclass(frozen=True, slots=True)
class QosProblem:
    """One value of ``fabric.qos`` that a switch system cannot apply."""

    key: str
    what: str
    expected: str
    actual: str
    hint: str
