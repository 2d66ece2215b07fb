"""Port counters of a NIC that a test raises, and the tests that share a port."""

from __future__ import annotations

import os
import time
from typing import Any

from .. import machine, rdmatree, store
from ..host import strain

Facts = dict[str, Any]
_MEET_S = 2.0
"""How long a test waits at most for others that were prepared on its port, s."""
_POLL_S = 0.05
_FORGET_S = 60.0


def await_client(end: Facts) -> None:
    """Record that a server on this port waits for its client.

    Only tests of a set duration are meant to meet others.
    """
    with store.change() as runtime:
        _of(runtime, end)[str(os.getpid())] = {"begun": None, "ended": None}


def flows(end: Facts) -> int:
    """Return how many tests use this port at once: those that ended after it began, or still run.

    Waits a little for servers whose client has not come yet.
    """
    now, mine = time.time(), str(os.getpid())
    with store.change() as runtime:
        known = _of(runtime, end)
        for pid in [pid for pid, one in known.items() if now - (one["begun"] or now) > _FORGET_S]:
            del known[pid]
        known[mine] = {"begun": now, "ended": None}
    while time.time() < now + _MEET_S:
        known = _of(store.runtime(), end)
        if not any(one["begun"] is None and _lives(pid) for pid, one in known.items()):
            break
        time.sleep(_POLL_S)
    known = _of(store.runtime(), end)
    return sum(1 for pid, one in known.items() if one["begun"] and _overlaps(one, pid, now))


def leave(end: Facts) -> None:
    """Record that this process's test on the port has ended."""
    with store.change() as runtime:
        mine = _of(runtime, end).get(str(os.getpid()))
        if mine is not None:
            mine["ended"] = time.time()


def _of(runtime: Facts, end: Facts) -> dict[str, Facts]:
    known: dict[str, Facts] = runtime.setdefault("flows", {}).setdefault(end["device"], {})
    return known


def _overlaps(other: Facts, pid: str, begun: float) -> bool:
    return bool(_lives(pid) if other["ended"] is None else other["ended"] > begun)


def _lives(pid: str) -> bool:
    return machine.alive(int(pid))


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
