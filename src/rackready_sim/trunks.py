"""Cables between switches: a pair of virtual interfaces, each end in its switch under the name of the port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rackready_sim import hostnet
from rackready_sim.host import run
from rackready_sim.plan import Trunk

States = Mapping[str, Mapping[str, Any]]


def pulled(trunk: Trunk, states: States) -> bool:
    """Return whether the hardware state of either switch says that its end is out."""
    ends = ((trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port))
    return any(states[switch]["cables"].get(port, {}).get("link") == "down" for switch, port in ends)


def settle(trunks: Sequence[Trunk], pids: Mapping[str, int], states: States) -> dict[str, list[str]]:
    """Plug and pull the cables between running switches; return switch -> ports that changed.

    ``pids``: process of every switch that runs. A cable to a switch that is off is out: the kernel removed it.
    """
    found = {switch: set(hostnet.links(pid)) for switch, pid in pids.items()}
    changed: dict[str, list[str]] = {}
    orders: dict[str, list[str]] = {}
    for trunk in trunks:
        if trunk.lower not in pids or trunk.upper not in pids:
            continue
        whole = trunk.lower_port in found[trunk.lower] and trunk.upper_port in found[trunk.upper]
        if whole != pulled(trunk, states):
            continue
        if whole:
            orders.setdefault(trunk.lower, []).append(f"link delete {trunk.lower_port}")
        else:
            _clear(trunk, found, orders)
            pair = f"{trunk.lower_port} type veth peer name {trunk.upper_port} netns {pids[trunk.upper]}"
            orders.setdefault(trunk.lower, []).append(f"link add name {pair}")
        changed.setdefault(trunk.lower, []).append(trunk.lower_port)
        changed.setdefault(trunk.upper, []).append(trunk.upper_port)
    for switch, lines in orders.items():
        _batch(pids[switch], lines)
    return changed


def _clear(trunk: Trunk, found: Mapping[str, set[str]], orders: dict[str, list[str]]) -> None:
    """Remove what is left of a cable whose other switch went down."""
    for switch, port in ((trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port)):
        if port in found[switch]:
            orders.setdefault(switch, []).insert(0, f"link delete {port}")


def _batch(pid: int, lines: Iterable[str]) -> None:
    argv = ["nsenter", "--target", str(pid), "--net", "--", "ip", "-force", "-batch", "-"]
    run(argv, stdin="".join(f"{line}\n" for line in lines).encode(), shown="ip -batch of the cables between switches")
