"""Findings of collectives."""

from __future__ import annotations

from rackready.gates.fabric import carried, transport
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.nccl import findings as nccl_findings

_SLOW = (
    "This gate does not show which node is slow: compare the rails' shares and the pair gate's figures: "
    "docs/runbooks/nccl-slow.md"
)
COLLECTIVE_SLOW = FailKind(
    "collective-slow",
    "{what} is slow",
    meaning="The collective reaches less bandwidth than these nodes and their fabric must reach.",
    next_step=_SLOW,
    runbook="docs/runbooks/nccl-slow.md",
)
COLLECTIVE_IMPLAUSIBLE = ErrorKind(
    "collective-implausible",
    "{what} is implausible",
    meaning="The bandwidth is more than these nodes and their fabric can carry: the profile or the "
    "output belongs to other hardware.",
    next_step="Check the platform profile, the output's origin and its units: one of them is wrong.",
)
DOMAINS_UNEQUAL = ErrorKind(
    "collective-domains-unequal",
    "NVLink domains are unequal",
    meaning="The NVLink domains take part with different numbers of nodes, so no bound can be computed.",
    next_step="Run it over domains of equal size: one rack at a time.",
)
NODE_ALONE = ErrorKind(
    "collective-node-alone",
    "{gate} not run",
    meaning="No other node can take part, so nothing between nodes was measured.",
    next_step="Run it together with more nodes, or declare the skip with its reason in site.yml (gates.skip).",
)
FINDINGS = (
    *nccl_findings.FINDINGS,
    *transport.FINDINGS,
    transport.HCAS_NOT_FOUND,
    *carried.FINDINGS,
    COLLECTIVE_IMPLAUSIBLE,
    DOMAINS_UNEQUAL,
    NODE_ALONE,
)
"""Findings of a collective over several nodes."""
