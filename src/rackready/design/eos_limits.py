"""Limits of lossless RoCE on Arista EOS. Source: Arista, "Quality of Service": default maps, transmit queues."""

from __future__ import annotations

from rackready.design.qos import QosFacts, QosProblem

_QUEUES = range(2, 7)
"""Traffic class 7 and its queue belong to EOS's own control traffic. Classes 0 and 1 are CoS 1 and 0: PFC counts by
CoS, so that it would pause the other one. Queue 1 is also where all other traffic is."""


def problems(qos: QosFacts) -> list[QosProblem]:
    """Return every value that the driver does not apply."""
    out = []
    for key, actual in (("priority", qos.priority), ("cnp_priority", qos.cnp_priority)):
        if actual not in _QUEUES:
            what = "EOS has its own use for that queue"
            out.append(QosProblem(key, what, f"{_QUEUES[0]} to {_QUEUES[-1]}", str(actual), "Choose one of them."))
    if qos.priority == qos.cnp_priority:
        what = "data and congestion notification share a queue, which EOS cannot schedule as both"
        hint = "Choose another one."
        out.append(QosProblem("cnp_priority", what, f"not {qos.priority}", str(qos.cnp_priority), hint))
    return out
