"""Names and addresses of NICs on the machines where outputs were captured, which profiles do not contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address

from rackready.design.facts import NicFacts
from rackready.gates.base import GateFacts
from rackready.model.problems import RackreadyError


def with_hcas(facts: GateFacts, given: Sequence[str], option: str = "--hca") -> GateFacts:
    """Return facts with these names of RDMA devices.

    ``given``: RAIL=NAME for every node, or NODE:RAIL=NAME. Raise RackreadyError that names the option.
    """
    out = facts
    for item, node, rail, name in _split(facts, given, option, "NODE:RAIL=NAME, or RAIL=NAME for all nodes"):
        for one in [node] if node else list(facts.nodes):
            out = _with(
                out,
                one,
                lambda nic, rail=rail: str(nic.rail) == rail,  # type: ignore[misc]
                {"rdma_device": name},
                f"{option} {item}",
                "rail",
            )
    for node_facts in out.nodes.values():
        named = [nic.rdma_device for nic in node_facts.nics if nic.rdma_device]  # a profile may not publish all
        _require_unique(option, node_facts.node.name, named)
    return out


def with_addresses(facts: GateFacts, given: Sequence[str], option: str = "--address") -> GateFacts:
    """Return facts with these addresses of compute NICs.

    ``given``: NODE:HCA=ADDRESS (IPv4). Raise RackreadyError that names the option.
    """
    out = facts
    for item, node, device, address in _split(facts, given, option, "NODE:HCA=ADDRESS"):
        if not node:
            raise RackreadyError(
                f"{option} {item}",
                expected="NODE:HCA=ADDRESS",
                actual="no node",
                next_step="Name the node before the HCA.",
            )
        try:
            IPv4Address(address)
        except AddressValueError as error:
            raise RackreadyError(
                f"{option} {item}", expected="an IPv4 address", actual=error, next_step="Correct it."
            ) from error
        out = _with(
            out,
            node,
            lambda nic, device=device: nic.rdma_device == device,  # type: ignore[misc]
            {"address": address},
            f"{option} {item}",
            "HCA",
        )
    _require_unique(
        option, "all nodes", [nic.address for node in out.nodes.values() for nic in node.nics if nic.address]
    )
    return out


def _split(facts: GateFacts, given: Sequence[str], option: str, form: str) -> list[tuple[str, str, str, str]]:
    """Return (item, node, name, value) of each item; node is empty if none is given."""
    out: dict[tuple[str, str], tuple[str, str, str, str]] = {}
    for item in given:
        place, sign, value = item.partition("=")
        node, colon, name = place.rpartition(":")
        if not (sign and value and name) or (colon and not node):
            raise RackreadyError(f"{option} {item}", expected=form, next_step="Correct it.")
        if node and node not in facts.nodes:
            raise RackreadyError(
                f"{option} {item}",
                expected=f"one of the nodes {', '.join(facts.nodes)}",
                actual=node,
                next_step="Correct it.",
            )
        if (node, name) in out:
            raise RackreadyError(
                f"{option} {item}",
                expected=f"one value for {place}",
                actual=f"{out[node, name][3]} before it",
                next_step="Give each once.",
            )
        out[node, name] = (item, node, name, value)
    return list(out.values())


def _with(
    facts: GateFacts, node: str, wanted: Callable[[NicFacts], bool], changed: dict[str, str], where: str, kind: str
) -> GateFacts:
    """Return facts with one changed NIC of a node."""
    of_node = facts.nodes[node]
    if not any(wanted(nic) for nic in of_node.nics):
        known = ", ".join(str(nic.rail) if kind == "rail" else nic.rdma_device for nic in of_node.nics) or "none"
        raise RackreadyError(
            where, expected=f"one of {node}'s {kind}s, {known}", actual="none of them", next_step="Correct it."
        )
    nics = tuple(replace(nic, **changed) if wanted(nic) else nic for nic in of_node.nics)  # type: ignore[arg-type]
    return replace(facts, nodes={**facts.nodes, node: replace(of_node, nics=nics)})


def _require_unique(option: str, where: str, values: Sequence[str]) -> None:
    twice = next((value for value, times in Counter(values).items() if times > 1), None)
    if twice is not None:
        raise RackreadyError(
            option,
            expected="a value of its own for every NIC",
            actual=f"{twice} twice on {where}",
            next_step="Correct it.",
        )
