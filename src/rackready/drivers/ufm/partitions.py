"""Partitions of tenants in UFM: what is missing there, the requests for it, and what UFM made of them.

Requests: NVIDIA UFM Enterprise REST API Guide 6.20.2 and 6.22.1, page "PKey GUIDs Rest API". POST adds members and
changes the membership of present ones; its default membership is full, so each request names one. ``index0`` has the
key at index 0 of the port, which programs use (drivers/ib/partitions.py: partitions_among). Members that the site
does not know, such as storage servers, are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rackready.design.tenants import tenants
from rackready.drivers.ib.partitions import DEFAULT
from rackready.drivers.process import check_stop
from rackready.drivers.ufm.client import UfmClient
from rackready.drivers.ufm.read import UfmPartition, read_partitions
from rackready.model.site import Site

SETTLE_S = 60.0
"""Longest wait until UFM shows an accepted change. Judgement: several sweeps of its opensm, of 10 s each."""
_POLL_S = 2.0
Wanted = Mapping[int, Mapping[int, bool]]
"""Partition key -> port GUID -> whether it is a full member."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one partition lacks. ``create``: it does not exist. ``remove``: ports that do not belong in it."""

    key: int
    create: bool = False
    join: Mapping[int, bool] = field(default_factory=dict)
    remove: tuple[int, ...] = ()

    @property
    def ports(self) -> frozenset[int]:
        """Return the ports whose keys change."""
        return frozenset((*self.join, *self.remove))


def compare(wanted: Wanted, held: Mapping[int, UfmPartition], ours: Collection[int]) -> tuple[Change, ...]:
    """Return the changes that make UFM's partitions those of the site. ``ours``: port GUIDs of the nodes of the run."""
    out = []
    for key, members in wanted.items():
        present, first = (held[key].members, held[key].first) if key in held else ({}, frozenset())
        join = {guid: full for guid, full in members.items() if present.get(guid) is not full or guid not in first}
        remove = tuple(sorted(guid for guid in present if guid in ours and guid not in members))
        if join or remove:
            out.append(Change(key, bool(join) and key not in held, join, remove))
    return tuple(out)


def wanted_partitions(site: Site, nodes: Collection[str], guids: Mapping[str, Collection[str]]) -> Wanted:
    """Return the members of every tenant's partition among the ports of ``nodes``.

    ``guids``: node -> port GUIDs, 16 hex digits each. A node in production that is not among ``nodes`` keeps its keys.
    """
    out: dict[int, dict[int, bool]] = {int(own.pkey, 16): {} for own in site.tenants if own.pkey is not None}
    for node, tenant in tenants(site).items():
        if node in nodes and tenant.pkey is not None:
            ports = dict.fromkeys((int(guid, 16) for guid in guids.get(node, ())), tenant.full_member)
            out[int(tenant.pkey, 16)] |= ports
    return out


def read(client: UfmClient) -> dict[int, UfmPartition]:
    """Return UFM's partitions with their members. Raises UfmError."""
    return read_partitions(client.get("resources/pkeys", guids_data="true"))


def carry_out(client: UfmClient, changes: Collection[Change]) -> None:
    """Request the changes. Ports leave before others join, so no moment joins two tenants. Raises UfmError."""
    for change in changes:
        if change.remove:
            guids = ",".join(map(_guid, change.remove))
            client.change("DELETE", f"resources/pkeys/{_key(change.key)}/guids/{guids}")
    for change in changes:
        if change.create:
            client.change("POST", "resources/pkeys/add", {"pkey": _key(change.key), "index0": True})
        for full in (False, True):
            guids_ = [_guid(guid) for guid, own in sorted(change.join.items()) if own is full]
            if guids_:
                membership = "full" if full else "limited"
                body = {"pkey": _key(change.key), "guids": guids_, "membership": membership, "index0": True}
                client.change("POST", "resources/pkeys", body)


def settle(client: UfmClient, wanted: Wanted, ours: Collection[int]) -> tuple[dict[int, UfmPartition], list[Change]]:
    """Return UFM's partitions once they are as wanted, or at the time limit, and what is still different."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        held = read(client)
        left = list(compare(wanted, held, ours))
        if not left or time.monotonic() > deadline:
            return held, left
        check_stop()
        time.sleep(_POLL_S)


def is_open(held: Mapping[int, UfmPartition]) -> bool:
    """Return whether UFM says that every port is a full member of the default partition."""
    return held[DEFAULT].default_full is True


def _key(key: int) -> str:
    return f"0x{key:x}"


def _guid(guid: int) -> str:
    return f"{guid:016x}"
