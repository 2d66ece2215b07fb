"""Port counters of a NIC that a test raises, and the tests that share a port."""

from __future__ import annotations

import os
import time
from typing import Any

from .. import machine, rdmatree, store
from ..host import strain

Facts = dict[str, Any]
_MEET_S = 2.0
"""Tests that start within this time run side by side, s."""


def flows(end: Facts) -> int:
    """Return how many tests use this port now: those that started in the last seconds.

    Only tests of a set duration are meant to meet others.
    """
    mine = f"{os.getpid()}"
    with store.change() as runtime:
        runtime.setdefault("flows", {}).setdefault(end["device"], {})[mine] = time.time()
    time.sleep(_MEET_S)
    begun = store.runtime()["flows"][end["device"]]
    return sum(1 for moment in begun.values() if time.time() - moment < _MEET_S * 2)


def count(end: Facts, result: Facts, *, client: bool) -> None:
    """Raise the port counters: four bytes a count; a server only receives, unless traffic goes both ways."""
    words = int(result["bytes"] * 1.016 / 4)
    nic = next(item for item in machine.nics() if item["rdma_device"] == end["device"])
    packets = int(result["bytes"] / max(end["mtu"], 256)) + 1
    sends, receives = client or result["both"], not client or result["both"]
    acks = packets // 16 + 1
    rdmatree.add(
        nic,
        {
            "port_xmit_data": words if sends else acks * 16,
            "port_rcv_data": words if receives else acks * 16,
            "port_xmit_packets": packets if sends else acks,
            "port_rcv_packets": packets if receives else acks,
        },
    )
    strain.port(nic)


def congestion(end: Facts, result: Facts, *, sends: bool) -> None:
    """Count congestion at the NIC: marks, notifications, pauses, losses, and bytes by priority."""
    fate, priority = result["fate"], result["priority"]
    marked, lost = int(fate.get("marked", 0)), int(fate.get("lost", 0))
    notices = 0 if result.get("cnp_off") else marked // 50 + (1 if marked else 0)
    way = "tx" if sends else "rx"
    interface = {
        f"{way}_prio{priority}_bytes": result["bytes"],
        f"{way}_prio{priority}_packets": result["bytes"] // 4096 + 1,
    }
    if sends:
        interface |= {
            f"rx_prio{priority}_pause": int(fate.get("paused", 0)),
            "rx_prio6_packets": notices,
            "rx_prio6_bytes": notices * 74,
        }
        hardware = {"rp_cnp_handled": notices, "packet_seq_err": lost, "local_ack_timeout_err": lost // 100}
    else:
        interface |= {"tx_prio6_packets": notices, "tx_prio6_bytes": notices * 74}
        hardware = {"np_ecn_marked_roce_packets": marked, "np_cnp_sent": notices, "out_of_sequence": lost}
    rdmatree.add(next(item for item in machine.nics() if item["rdma_device"] == end["device"]), hardware, hardware=True)
    with store.change() as runtime:
        have = runtime["counters"].setdefault(end["device"], {})
        for name, amount in interface.items():
            have[name] = have.get(name, 0) + amount
