"""The switch's forwarding chip: port rates, marking, pausing and dropping, and the counters of `nv show`.

It learns of traffic from frames of `perf.wire`, which enter at the sender's port and name the receiver by its Ethernet
address.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .. import store
from ..perf import wire
from . import apply, grammar, path, revisions
from .sonic import db

Facts = dict[str, Any]
_ROCE, _CNP = 3, 6
_PACKET = 4096
_MARKED = 0.02
"""Share of packets marked while several senders fill one port. Judgement.

DCQCN keeps the queue between its thresholds.
"""
_PAUSED = 0.0005
_DROPPED = 0.0004
"""Share of packets lost at the edge of a queue that nothing slows down. Judgement."""
_OUTGOING = 4
_EVERY = 3
"""ETH_P_ALL of linux/if_ether.h."""
_OWN, _NEXT = b"\x02\x00\x00\x00\x00\x01", b"\x02\x00\x00\x00\x00\x02"
_FORGOTTEN_S = 5.0
"""A question is forgotten that the next switch did not answer. Judgement: longer than any sender waits."""


class Chip:
    """The chip: it answers senders, and asks the next switch about the rest of a routed path."""

    def __init__(self, send: Callable[[str, bytes], None]) -> None:
        self._send = send
        self._waiting: dict[str, tuple[str, bytes, Facts, float]] = {}

    def receive(self, port: str, raw: bytes, now: float) -> None:
        """Take a frame that entered at a port. Frames that are no questions or answers are left alone."""
        try:
            told = wire.message(raw)
        except (ValueError, IndexError, struct.error):
            return
        if "answer" in told:
            self._pass_back(told)
            return
        hop = path.leave(raw[:6], told)
        last = not hop.routed
        answer = forward(port, hop.port, told if last else {**told, "flows": 1})
        if last or hop.port is None:
            self._answer(port, raw[6:12], told, answer)
            return
        token = uuid.uuid4().hex
        self._waiting = {key: one for key, one in self._waiting.items() if now - one[3] < _FORGOTTEN_S}
        self._waiting[token] = (port, raw[6:12], {**answer, "id": told.get("id")}, now)
        self._send(hop.port, wire.frame(_NEXT, _OWN, {**told, "id": token}))

    def _pass_back(self, told: Facts) -> None:
        waiting = self._waiting.pop(str(told.get("id")), None)
        if waiting is None:
            return
        port, sender, ours, _ = waiting
        theirs = told["answer"]
        both = {"factor": min(ours["factor"], theirs.get("factor", 1.0))}
        both |= {key: ours.get(key, 0) + theirs[key] for key in ("marked", "paused", "lost") if key in theirs}
        self._answer(port, sender, {"id": ours["id"]}, both)

    def _answer(self, port: str, sender: bytes, told: Facts, answer: Facts) -> None:
        self._send(port, wire.frame(sender, _OWN, {"answer": answer, "id": told.get("id")}))


def serve() -> None:
    """Answer frames until the machine stops.

    A bridge port passes its frames only to listeners on every protocol.
    """
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY)) as handle:
        chip = Chip(lambda port, frame: _send(handle, port, frame))
        while True:
            raw, (port, _, kind, *_rest) = handle.recvfrom(65535)
            if kind == _OUTGOING or not apply.is_port(port) or raw[12:14] != wire.ETHERTYPE.to_bytes(2, "big"):
                continue
            chip.receive(port, raw, time.monotonic())


def _send(handle: socket.socket, port: str, frame: bytes) -> None:
    with suppress(OSError):  # the port may just have gone
        handle.sendto(frame, (port, wire.ETHERTYPE))


def start() -> None:
    """Serve in the background."""
    threading.Thread(target=serve, daemon=True).start()


def lossless() -> bool:
    """Return whether the applied configuration makes RoCE lossless."""
    if apply.is_sonic():
        config = db.read()
        up = [name for name, port in db.ports(config).items() if port["up"]]
        return bool(up) and all(_ROCE in db.lossless(config, name) for name in up)
    ours = {words for words in revisions.read().running().settings if words[:2] == ("qos", "roce")}
    off = grammar.disabled(ours, "qos", "roce")
    return bool(ours) and not off and ("qos", "roce", "mode", "lossy") not in ours


def forward(entry: str, leave: str | None, told: Facts) -> Facts:
    """Forward traffic from one port to another; return its losses, marks and pauses.

    ``told`` without ``bytes`` only asks for the rate of the path.
    """
    state = store.hardware()
    ports = state["ports"]
    here, there = ports.get(entry, {}), ports.get(leave or "", {})
    factor = min(here.get("factor", 1.0), there.get("factor", 1.0))
    if "bytes" not in told:
        return {"factor": factor}
    packets, priority = int(told["bytes"]) // _PACKET + 1, int(told["priority"])
    crowded = int(told.get("flows", 1)) > 1
    protected = lossless() and priority == _ROCE
    marked = int(packets * _MARKED) if crowded and protected and not state.get("ecn_off") else 0
    full = crowded and (priority != _ROCE or not lossless() or not marked)
    pauses = protected and not here.get("pfc_off")
    paused = int(packets * _PAUSED * (20 if full else 1)) if crowded and pauses else 0
    dropped = int(packets * _DROPPED) + 1 if crowded and (not pauses or not protected) else 0
    damaged = int(packets * here.get("error_share", 0.0))
    _count(
        entry,
        leave,
        priority,
        {
            "packets": packets,
            "marked": marked,
            "paused": paused,
            "dropped": dropped,
            "damaged": damaged,
            "bytes": told["bytes"],
        },
    )
    return {"factor": factor, "marked": marked, "paused": paused, "lost": dropped + damaged}


def _count(entry: str, leave: str | None, priority: int, done: Facts) -> None:
    with store.change() as runtime:
        counters = runtime["counters"]
        into = counters.setdefault(entry, {})
        _add(into, f"in-{priority}", {"rx-frames": done["packets"], "rx-buffer-discards": done["dropped"]})
        _add(into, f"pfc-{priority}", {"tx-pause-frames": done["paused"]})
        _add(into, "stats", {"in-errors": done["damaged"], "in-pkts": done["packets"], "in-bytes": done["bytes"]})
        if leave is not None:
            out = counters.setdefault(leave, {})
            _add(
                out,
                f"out-{priority}",
                {"tx-frames": done["packets"], "tx-bytes": done["bytes"], "ecn-marked-frames": done["marked"]},
            )
            _add(out, "stats", {"out-pkts": done["packets"], "out-bytes": done["bytes"]})
            if done["marked"]:
                _add(out, f"in-{_CNP}", {"rx-frames": done["marked"] // 50 + 1})


def _add(counters: Facts, group: str, amounts: Facts) -> None:
    found = counters.setdefault(group, {})
    for name, amount in amounts.items():
        found[name] = found.get(name, 0) + int(amount)


def qos(port: str) -> Facts:
    """Return the output of `nv show interface PORT counters qos`."""
    have: Facts = store.runtime()["counters"].get(port, {})
    classes = [str(number) for number in range(8)]
    return {
        "egress-queue-stats": {
            number: _filled(
                have.get(f"out-{number}", {}),
                "ecn-marked-frames",
                "tx-bytes",
                "tx-frames",
                "tx-uc-buffer-discards",
                "wred-discards",
            )
            for number in classes
        },
        "ingress-buffer-stats": {
            number: _filled(
                have.get(f"in-{number}", {}), "rx-buffer-discards", "rx-frames", "rx-shared-buffer-discards"
            )
            for number in classes
        },
        "pfc-stats": {
            number: _filled(
                have.get(f"pfc-{number}", {}),
                "rx-pause-duration",
                "rx-pause-frames",
                "tx-pause-duration",
                "tx-pause-frames",
            )
            for number in classes
        },
        "qos-port-stats": {
            "ecn-marked-packets": {
                "tx": sum(have.get(f"out-{number}", {}).get("ecn-marked-frames", 0) for number in classes)
            }
        },
    }


def stats(port: str) -> Facts:
    """Return the output of `nv show interface PORT link stats`."""
    have: Facts = store.runtime()["counters"].get(port, {})
    names = (
        "in-bytes",
        "in-pkts",
        "in-drops",
        "in-errors",
        "out-bytes",
        "out-pkts",
        "out-drops",
        "out-errors",
        "carrier-transitions",
    )
    return _filled(have.get("stats", {}), *names)


def _filled(have: Facts, *names: str) -> Facts:
    return {name: int(have.get(name, 0)) for name in names}
