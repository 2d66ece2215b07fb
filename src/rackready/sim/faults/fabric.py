"""Faults of NICs and of what lies between them."""

from __future__ import annotations

from rackready.sim.faults.base import NIC, Fault, State, part


def _nic_down(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["link"] = "down"


def _nic_slow(state: State, nic: int, factor: float) -> None:
    part(state, "nics", nic, "rail")["factor"] = factor


def _nic_rate(state: State, nic: int, rate: int) -> None:
    part(state, "nics", nic, "rail")["rate_gbps"] = rate


_PAIR = "pair/fabric/performance/ib-write-bw"

FAULTS = (
    Fault("nic-down", "fabric", "the cable of a rail is out", _nic_down, NIC, _PAIR),
    Fault("nic-slow", "fabric", "a NIC carries a fraction of its rate", _nic_slow, {"nic": 1, "factor": 0.5}, _PAIR),
    Fault("nic-rate", "fabric", "a link trained at a lower rate, Gb/s", _nic_rate, {"nic": 1, "rate": 200}, _PAIR),
)
