"""Ping peers within each rail with full-size frames that may not be split: proves cable, VLAN, address and MTU at once.

Reads a request (JSON) from standard input and prints one JSON document. A rail without a peer is listed as not
measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FORMAT = "rackready/rail-ping/v1"
_HEADERS = 28
"""Bytes of IPv4 and ICMP headers inside the MTU."""


def ping(netdev: str, address: str, mtu: int) -> str:
    """Return an empty text when the peer answered, or else ping's last line."""
    argv = [
        "ping",
        "-q",
        "-n",
        "-c",
        "3",
        "-i",
        "0.2",
        "-W",
        "2",
        "-M",
        "do",
        "-s",
        str(mtu - _HEADERS),
        "-I",
        netdev,
        address,
    ]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
    except FileNotFoundError:
        return "ping is not installed"
    except subprocess.TimeoutExpired:
        return "no end within 30 s"
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    return (
        ""
        if done.returncode == 0
        else next(
            (line for line in lines if "loss" in line or "message too long" in line),
            lines[-1] if lines else "no answer",
        )
    )


def judged(request: dict[str, Any]) -> list[dict[str, str]]:
    """Return a problem for each rail on which no peer answered.

    If only one of several peers is silent, the problem is that peer's own.
    """
    tests = [(rail, peer) for rail in request["rails"] for peer in rail["peers"]]
    with ThreadPoolExecutor(max_workers=16) as pool:
        answers = list(pool.map(lambda test: ping(test[0]["netdev"], test[1]["address"], int(request["mtu"])), tests))
    pairs = zip(tests, answers)  # noqa: B905 - old interpreters know no strict
    return problems(request, {(rail["rail"], peer["node"]): answer for (rail, peer), answer in pairs})


def problems(request: dict[str, Any], answers: dict[tuple[int, str], str]) -> list[dict[str, str]]:
    """Judge the answers, without any input or output."""
    out = []
    for rail in request["rails"]:
        said = {peer["node"]: answers[rail["rail"], peer["node"]] for peer in rail["peers"]}
        if said and all(said.values()):
            what = f"rail {rail['rail']} ({rail['netdev']})" + (" across the spines" if rail.get("far") else "")
            expected = f"an answer to {request['mtu']} byte packets from {' or '.join(said)}"
            out.append({"what": what, "expected": expected, "actual": "; ".join(sorted(set(said.values())))})
    return out


def unmeasured(request: dict[str, Any]) -> list[str]:
    """Return, in words, each rail without a peer to ask: no problem there proves nothing."""
    return [
        f"rail {rail['rail']}: no other node in this run to reach" for rail in request["rails"] if not rail["peers"]
    ]


def document(request: dict[str, Any], found: list[dict[str, str]]) -> dict[str, Any]:
    """Return the document: problems, and the rails that were measured and those that were not."""
    measured = list(dict.fromkeys(rail["rail"] for rail in request["rails"] if rail["peers"]))
    return {
        "format": FORMAT,
        "problems": found,
        "measured": measured,
        "unmeasured": unmeasured(request),
        "complete": True,
    }


def main() -> int:
    """Ping; exit 0 when every rail with a peer reaches somebody. Rails without one are listed as not measured."""
    request = json.load(sys.stdin)
    found = judged(request)
    sys.stdout.write(json.dumps(document(request, found)) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
