"""Limits of lossless RoCE on Cisco NX-OS. Source: Cisco, Nexus 9000 QoS guide: eight queues, q-default is group 0."""

from __future__ import annotations

from rackready.design.qos import QosFacts, QosProblem

_GROUPS = range(1, 8)
"""Network-qos classes `c-8q-nq1` to `c-8q-nq7` are for traffic of our own; all else is in the default one."""


def problems(qos: QosFacts) -> list[QosProblem]:
    """Return every value that the driver does not apply."""
    out = []
    for key, actual in (("priority", qos.priority), ("cnp_priority", qos.cnp_priority)):
        if actual not in _GROUPS:
            what = "NX-OS keeps that queue for all other traffic"
            out.append(QosProblem(key, what, f"{_GROUPS[0]} to {_GROUPS[-1]}", str(actual), "Choose one of them."))
    if qos.priority == qos.cnp_priority:
        what = "data and congestion notification share a queue, which NX-OS cannot schedule as both"
        hint = "Choose another one."
        out.append(QosProblem("cnp_priority", what, f"not {qos.priority}", str(qos.cnp_priority), hint))
    return out
