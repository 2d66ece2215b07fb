"""Findings of the comparison of an InfiniBand fabric with the site, beside those of the cabling check."""

from __future__ import annotations

from rackready.model.finding_kinds import ErrorKind, FailKind, Kinds

_RUNBOOK = "docs/runbooks/infiniband.md"
_BY = "the fabric phase"

PORTS_UNREAD = ErrorKind(
    "ib-ports-unread",
    "InfiniBand ports not readable",
    meaning="The node did not report the state of its InfiniBand ports.",
    next_step="Run `rackready fabric` again; if it stays, run `ibstat` on the node.",
    runbook=_RUNBOOK,
    by=_BY,
)
SUBNET_UNREAD = ErrorKind(
    "ib-subnet-unread",
    "subnet not readable",
    meaning="The subnet could not be discovered from any port, so its cables were not compared.",
    next_step="Run `ibnetdiscover` on the node and read its output.",
    runbook=_RUNBOOK,
    by=_BY,
)
NO_MANAGER = FailKind(
    "ib-no-subnet-manager",
    "no subnet manager",
    meaning="No subnet manager answers as master, so ports get no LID and carry no data.",
    next_step="Check `systemctl status 'rackready-opensm@*'` on the nodes of fabric.infiniband.nodes, the manager that "
    "the site calls external, or opensm on the UFM host.",
    runbook=_RUNBOOK,
    by=_BY,
)
MANAGER_UNASKED = ErrorKind(
    "ib-subnet-manager-unasked",
    "subnet manager not asked",
    meaning="No port of the subnet could ask its subnet manager, so nothing proves that one manages the subnet now.",
    next_step="Bring a port up in the subnet, and run `sminfo -C <HCA> -P 1` on its node; then run `rackready fabric` "
    "again.",
    runbook=_RUNBOOK,
    by=_BY,
)
PORT_STATE = FailKind(
    "ib-port-state",
    "port not Active",
    meaning="The port has its link, but no subnet manager brought it to Active.",
    next_step="Read the subnet manager's log for this port.",
    runbook=_RUNBOOK,
    by=_BY,
)
PEER_UNREACHED = FailKind(
    "ib-peer-unreached",
    "{count} peers of the rail do not answer",
    meaning="The port is Active, but peers of its rail are not reached by their LIDs: the forwarding tables of the "
    "switches lead elsewhere.",
    next_step="Run `ibtracert` between both LIDs; restart the subnet manager if a table is wrong.",
    runbook=_RUNBOOK,
    by=_BY,
)

FINDINGS: Kinds = (PORTS_UNREAD, SUBNET_UNREAD, NO_MANAGER, MANAGER_UNASKED, PORT_STATE, PEER_UNREACHED)
