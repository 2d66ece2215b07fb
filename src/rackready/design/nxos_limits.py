"""Limits of lossless RoCE on Cisco NX-OS. Source: Cisco, Nexus 9000 QoS guide: eight queues, q-default is group 0.

Strict priority is for the highest group (10.5(x), "Configuring Queuing and Scheduling"): notifications have group 7.
"""

from __future__ import annotations

from rackready.design.qos import QosFacts, QosProblem

_GROUPS = range(1, 8)
"""Network-qos classes `c-8q-nq1` to `c-8q-nq7` are for traffic of our own; all else is in the default one."""
_DATA = range(1, 7)
"""Group 7 is the strict queue of notifications, whatever their priority is on hosts."""


def problems(qos: QosFacts) -> list[QosProblem]:
    """Return every value that the driver does not apply."""
    out = []
    for key, actual, allowed in (("priority", qos.priority, _DATA), ("cnp_priority", qos.cnp_priority, _GROUPS)):
        if actual not in allowed:
            what = f"NX-OS keeps that queue for {'all other traffic' if actual == 0 else 'congestion notification'}"
            out.append(QosProblem(key, what, f"{allowed[0]} to {allowed[-1]}", str(actual), "Choose one of them."))
    if qos.priority == qos.cnp_priority:
        what = "data and congestion notification share a queue, which NX-OS cannot schedule as both"
        hint = "Choose another one."
        out.append(QosProblem("cnp_priority", what, f"not {qos.priority}", str(qos.cnp_priority), hint))
    return out
