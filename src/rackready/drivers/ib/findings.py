"""Findings about InfiniBand that the neutral cabling check does not know."""

from __future__ import annotations

from rackready.model.finding_kinds import ErrorKind, FailKind, Kinds

_CABLING = "docs/runbooks/cabling.md"
_BY = "the InfiniBand check"

HCA_UNNAMED = ErrorKind(
    "ib-hca-unnamed",
    "{count} adapters of no known node",
    meaning="Adapters whose description names no node and HCA of the site. Their cables were not judged.",
    next_step="Start rdma-ndd on the nodes (it sets '<host> <HCA>'), or give the GUIDs of the adapters.",
    runbook=_CABLING,
    by=_BY,
)
NAME_TWICE = ErrorKind(
    "ib-name-twice",
    "name of several devices",
    meaning="Several devices of the fabric carry one name: none of their cables was judged.",
    next_step="Correct the host name or the description of all but one.",
    runbook=_CABLING,
    by=_BY,
)
NAME_CONTRADICTS = ErrorKind(
    "ib-name-contradicts",
    "name and GUID differ",
    meaning="The description of an adapter or switch names another device than the list of GUIDs.",
    next_step="Correct the list of GUIDs after a replacement, else the name of the host or switch.",
    runbook=_CABLING,
    by=_BY,
)
ENGINE = FailKind(
    "ib-routing-engine",
    "routing engine",
    meaning="opensm does not route with the declared engine: it falls back without an error.",
    next_step="Read opensm's log: it says why the engine failed. Add no_fallback to refuse another one.",
    by=_BY,
)
NOT_UP = FailKind(
    "ib-subnet-not-up",
    "subnet",
    meaning="opensm's last sweep did not end with SUBNET UP.",
    next_step="Read opensm's log for the first ERR line.",
    by=_BY,
)
PARTITIONS_LOST = FailKind(
    "ib-partitions-discarded",
    "partitions",
    meaning="opensm discarded the whole partition file for an error: every port is a full member of 0x7fff, so tenants "
    "reach each other.",
    next_step="Correct the line that opensm's log names, then send opensm a HUP.",
    by=_BY,
)
PKEYS = FailKind(
    "ib-port-pkeys",
    "partition keys",
    meaning="The port holds other partition keys than planned: it reaches another tenant, or not its own.",
    next_step="Compare the port GUID of `ibstat` with the members of the partitions, in opensm's file or in UFM. Send "
    "opensm a HUP after a change of its file.",
    by=_BY,
)
PKEY_PLACE = FailKind(
    "ib-port-pkey-place",
    "partition key at index 0",
    meaning="The tenant's key is not at index 0 of the port's table. Programs use that index unless they are told "
    "another one (perftest, NCCL, IPoIB): their data go to the default partition, where two limited members exchange "
    "nothing.",
    next_step="opensm: flag indx0 in the line of the partition, then send opensm a HUP. UFM: index0 true for the port. "
    "Another subnet manager: ask its owner for it.",
    by=_BY,
)
PKEYS_UNREAD = ErrorKind(
    "ib-port-pkeys-unread",
    "partition keys",
    meaning="The partition keys of the port were not read: isolation is not proven.",
    next_step="Check that the port is active, then read its keys again.",
    by=_BY,
)

FINDINGS: Kinds = (
    HCA_UNNAMED,
    NAME_TWICE,
    NAME_CONTRADICTS,
    ENGINE,
    NOT_UP,
    PARTITIONS_LOST,
    PKEYS,
    PKEY_PLACE,
    PKEYS_UNREAD,
)
