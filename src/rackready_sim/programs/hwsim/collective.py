"""The machine-dependent part of NCCL's tests; the C launcher calls it and carries texts between ranks over MPI.

``facts`` prints one machine's facts. ``probe`` tests on the network whether the next machine can be reached on every
rail. ``report`` computes and prints the test's output. ``account`` raises the port counters of one machine by the bytes
that its rails carried.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

from . import machine, rdmatree
from .host import strain
from .perf import facts, nccl, probe

Facts = dict[str, Any]


def main(argv: list[str]) -> int:
    """Run one step; input is JSON on standard input, output JSON or the report on standard output."""
    steps = {"facts": _facts, "probe": _probe, "report": _report, "account": _account}
    return steps[argv[0]](argv[1:])


def _facts(_argv: list[str]) -> int:
    sys.stdout.write(json.dumps(facts.node_facts()))
    return 0


def _probe(argv: list[str]) -> int:
    """Return the rails on which the next machine cannot be reached; the input has one line per rank."""
    lines = [json.loads(line) for line in sys.stdin.read().splitlines()]
    mine = next(line["facts"] for line in lines if line["rank"] == int(argv[0]))
    peer = nccl.next_peer(lines, mine["hostname"])
    sys.stdout.write(json.dumps(nccl.unreachable(mine, peer, probe.reachable) if peer else []))
    return 0


def _report(argv: list[str]) -> int:
    """Compute the report.

    Input: a line for every rank, an empty line, and a line for every probe. The answer goes to descriptor 3.
    """
    first, _, second = sys.stdin.read().partition("\n\n")
    request = {
        "ranks": [json.loads(line) for line in first.splitlines()],
        "probes": [item for line in second.splitlines() for item in json.loads(line)],
    }
    text, answer = nccl.report(request, argv)
    sys.stdout.write(text)
    sys.stdout.flush()
    with open(3, "w", encoding="ascii") as stream:
        stream.write(f"{answer['code']}\n{json.dumps(answer['carried'])}")
    return 0


def _account(_argv: list[str]) -> int:
    carried = json.loads(sys.stdin.read()).get(socket.gethostname(), {})
    for nic in machine.nics():
        amount = int(carried.get(nic["rdma_device"], 0))
        if amount:
            words, packets = int(amount * 1.016 / 4), amount // 4096 + 1
            rdmatree.add(
                nic,
                {
                    "port_xmit_data": words,
                    "port_rcv_data": words,
                    "port_xmit_packets": packets,
                    "port_rcv_packets": packets,
                },
            )
            strain.port(nic)
    return 0
