"""Limits of NVUE's preset for lossless RoCE. Source: Cumulus Linux RoCE guide, `nv show qos roce`."""

from __future__ import annotations

from rackready.design.ecn import EcnThresholds
from rackready.design.qos import PRIORITIES, QosFacts, QosProblem

ECN = EcnThresholds(150_000, 1_500_000)
"""Its ECN thresholds, at every speed: Cumulus Linux 5.15, "Quality of Service" (bytes of the default profile) and "RDMA
over Converged Ethernet" (146.48 KB and 1.43 MB)."""
_DSCP = {priority: range(8 * priority, 8 * priority + 8) for priority in range(PRIORITIES)}
"""The preset maps eight consecutive DSCPs to each priority."""
_PRIORITY = 3
_CNP_PRIORITY = 6


def problems(qos: QosFacts) -> list[QosProblem]:
    """Return every value that the preset does not support."""
    out = []
    for key, actual, expected in (
        ("priority", qos.priority, _PRIORITY),
        ("cnp_priority", qos.cnp_priority, _CNP_PRIORITY),
    ):
        if actual != expected:
            what = "NVUE's lossless RoCE preset does not support this value"
            out.append(QosProblem(key, what, str(expected), str(actual), f"Use {expected}."))
    for key, actual, priority in (("dscp", qos.dscp, _PRIORITY), ("cnp_dscp", qos.cnp_dscp, _CNP_PRIORITY)):
        allowed = _DSCP[priority]
        if actual not in allowed:
            what, fits = "NVUE's lossless RoCE preset maps it to another priority", f"{allowed[0]} to {allowed[-1]}"
            out.append(QosProblem(key, what, fits, str(actual), "Choose one of them."))
    return out
