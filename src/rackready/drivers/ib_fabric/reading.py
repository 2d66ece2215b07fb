"""Readings of an InfiniBand fabric over SSH: ports of each node, and each subnet from one of its ports."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rackready.design.facts import NicFacts, node_facts
from rackready.drivers.ib.discover import IbFabric, read_ibnetdiscover
from rackready.drivers.ib.text import IbTextError
from rackready.drivers.ib_fabric.findings import SUBNET_UNREAD
from rackready.drivers.process import check_stop
from rackready.drivers.remote import Answer, Remote
from rackready.drivers.ssh.target import node_target
from rackready.model.finding_kinds import ErrorKind
from rackready.model.site import Site
from rackready.ondevice.ib_ports import FORMAT
from rackready.paths import EnvPaths

_SCRIPT = ("python3", "/usr/local/lib/rackready/ib_ports.py")
_TIMEOUT_S = 240.0
_AT_ONCE = 16
_SETTLE_S = 60.0
"""Longest wait for ports with a link to become Active. Judgement: opensm sweeps every 10 s (opensm(8), -s)."""
_TAKEOVER_S = 60.0
"""Longest wait for a standby to become master. It notices after 4 polls of 10 s that no master answers (opensm's
sminfo_polling_timeout and polling_retry_number, osm_base.h), and its first sweep follows."""
_POLL_S = 2.0
_NO_ANSWER = "iberror: failed: query"
"""What sminfo says where it asked, and nobody answered (rdma-core infiniband-diags/sminfo.c; ibdiag_common.c: ibexit).
It takes the manager's LID from the kernel, so M_Key protection of the port does not hinder it."""
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
Ports = Mapping[str, Mapping[str, Any]]
"""RDMA device to its port, as ib_ports.py prints it."""


class ManagerReading(NamedTuple):
    """Whether a subnet manager answers as master, and what it says; ``unasked``: why it could not be asked."""

    has_master: bool
    said: str = ""
    unasked: str = ""


@dataclass(slots=True)
class SubnetReading:
    """One subnet as seen from one port; ``trouble``: why it could not be read.

    ``unasked``: why its manager could not be asked.
    """

    switches: tuple[str, ...]
    fabric: IbFabric | None = None
    has_master: bool = False
    said: str = ""
    unasked: str = ""
    trouble: str = ""
    source: str = ""
    unread: ErrorKind = SUBNET_UNREAD
    """The finding if it could not be read."""


@dataclass(slots=True)
class NodeReading:
    """One node's ports; ``trouble``: why they could not be read.

    ``missed``: peers that did not answer; ``unasked``: those that could not be asked.
    """

    ports: Ports = field(default_factory=dict)
    trouble: str = ""
    missed: list[dict[str, str]] = field(default_factory=list)
    unasked: list[dict[str, str]] = field(default_factory=list)


class Reader:
    """Reads nodes of one site."""

    def __init__(self, site: Site, paths: EnvPaths, nodes: Sequence[str]) -> None:
        self._site = site
        self._remote = Remote({node: node_target(site, node, paths.known_hosts) for node in nodes})

    def close(self) -> None:
        """Close the connections."""
        self._remote.close()

    def ports(self, nodes: Sequence[str]) -> dict[str, NodeReading]:
        """Return the ports of nodes; those with a link get time to become Active."""
        deadline = time.monotonic() + _SETTLE_S
        found = self._each(nodes)
        while late := [node for node, reading in found.items() if _settling(reading)]:
            check_stop()
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
            found |= self._each(late)
        return found

    def _each(self, nodes: Sequence[str]) -> dict[str, NodeReading]:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return dict(zip(nodes, pool.map(self._read, nodes), strict=True))

    def _read(self, node: str) -> NodeReading:
        devices = [nic.rdma_device for nic in node_facts(self._site, node).nics]
        answer = self._remote.run(node, (*_SCRIPT, "read", *devices), timeout_s=_TIMEOUT_S)
        document, said = _document(answer)
        return NodeReading(document["ports"]) if document else NodeReading(trouble=said)

    def guids(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """Return node -> GUIDs of its compute ports, 16 hex digits each; a node that cannot tell is left out.

        The kernel tells them (drivers/infiniband/core/sysfs.c): this needs no script on the node.
        """
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            found = dict(zip(nodes, pool.map(self._guids, nodes), strict=True))
        return {node: guids for node, guids in found.items() if guids}

    def _guids(self, node: str) -> list[str]:
        devices = [nic.rdma_device for nic in node_facts(self._site, node).nics]
        files = [f"/sys/class/infiniband/{device}/ports/1/gids/0" for device in devices]
        answer = self._remote.run(node, ("cat", *files), timeout_s=_TIMEOUT_S)
        gids = answer.stdout.split()
        if answer.exit_code != 0 or len(gids) != len(files) or not all(map(_GID.fullmatch, gids)):
            return []
        return sorted(gid.replace(":", "")[16:] for gid in gids)

    def reach(self, node: str, request: Sequence[Mapping[str, object]]) -> NodeReading:
        """Return the peers that a node's ports do not reach by their LIDs."""
        answer = self._remote.run(node, (*_SCRIPT, "reach"), stdin=json.dumps(list(request)), timeout_s=_TIMEOUT_S)
        document, said = _document(answer)
        if not document or document.get("asked") != len(request):
            return NodeReading(trouble=said or "an incomplete answer")
        return NodeReading(missed=document["missed"], unasked=document["unasked"])

    def subnet(self, node: str, nic: NicFacts, switches: tuple[str, ...]) -> SubnetReading:
        """Return a subnet as one port sees it, and whether its manager answers."""
        out = SubnetReading(switches, source=f"{node} {nic.rdma_device}")
        answer = self._remote.run(node, ("ibnetdiscover", *_port(nic)), timeout_s=_TIMEOUT_S)
        if answer.exit_code != 0:
            out.trouble = _said(answer)
            return out
        try:
            out.fabric = read_ibnetdiscover(answer.stdout)
        except IbTextError as error:
            out.trouble = str(error)
        out.has_master, out.said, out.unasked = self.manager(node, nic)
        return out

    def manager(self, node: str, nic: NicFacts) -> ManagerReading:
        """Return what a port learns of its subnet manager (sminfo). A standby gets the time to take over."""
        until = time.monotonic() + _TAKEOVER_S
        while True:
            answer = self._remote.run(node, ("sminfo", *_port(nic)), timeout_s=_TIMEOUT_S)
            if answer.exit_code != 0 and _NO_ANSWER not in answer.stdout + answer.stderr:
                return ManagerReading(has_master=False, unasked=f"{node} {nic.rdma_device}: {_said(answer)}")
            master = answer.exit_code == 0 and "SMINFO_MASTER" in answer.stdout
            if master or answer.exit_code != 0 or time.monotonic() > until:
                return ManagerReading(master, _said(answer))
            check_stop()
            time.sleep(_POLL_S)


def _port(nic: NicFacts) -> tuple[str, ...]:
    """Return the options with which infiniband-diags use the port of a NIC."""
    return ("-C", nic.rdma_device, "-P", "1")


def _settling(reading: NodeReading) -> bool:
    """Return whether a port has its link and is not Active yet."""
    return any(
        str(port.get("phys_state", "")).endswith("LinkUp") and not str(port.get("state", "")).endswith("ACTIVE")
        for port in reading.ports.values()
    )


def _document(answer: Answer) -> tuple[dict[str, Any], str]:
    """Return what ib_ports.py printed, or why there is no whole document."""
    try:
        found = json.loads(answer.stdout)
    except ValueError:
        found = {}
    if found.get("format") != FORMAT or found.get("complete") is not True:
        return {}, _said(answer)
    return found, ""


def _said(answer: Answer) -> str:
    late = f"no answer within {_TIMEOUT_S:.0f} s" if answer.timed_out else ""
    text = " ".join(answer.stderr.split())[-200:] or " ".join(answer.stdout.split())[-200:]
    return late or answer.failure or text or f"exit {answer.exit_code}"
