"""Partitions of tenants on a site whose subnet UFM manages: set for the nodes of a run, and read back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rackready.campaign.drained_phase import Results
from rackready.drivers.ib_fabric.verify import result
from rackready.drivers.ufm import findings as kinds
from rackready.drivers.ufm.client import UfmClient
from rackready.drivers.ufm.partitions import Change, Wanted, carry_out, compare, read, settle, wanted_partitions
from rackready.drivers.ufm.read import read_version
from rackready.ledger.store import Ledger
from rackready.model.infiniband import Ufm
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths

Guids = Mapping[str, Sequence[str]]
"""Node -> GUIDs of its ports, 16 hex digits each."""


def with_partitions(ctx: PhaseContext, site: Site, results: Results, guids: Guids) -> Results:
    """Return the results of nodes with those of their partitions in UFM, which a dry run only compares.

    Nodes whose result does not continue keep their partitions. A site without UFM or without tenants is unchanged.
    """
    own = site.fabric.infiniband
    nodes = [node for node, found in results.items() if found.outcome in CONTINUES]
    if own is None or own.ufm is None or not nodes or not any(tenant.pkey for tenant in site.tenants):
        return results
    if blind := [node for node in nodes if not guids.get(node)]:
        unread = {node: _error(node, results[node], "the GUIDs of its ports were not read") for node in blind}
        return with_partitions(ctx, site, results | unread, guids)
    try:
        return results | _Run(ctx, site, nodes, guids).go(own.ufm, results)
    except RackreadyError as error:
        return results | {node: _error(node, results[node], str(error)) for node in nodes}


def _error(node: str, before: NodeResult, text: str) -> NodeResult:
    return NodeResult(Outcome.ERROR, f"{node}: partitions in UFM: {text}", changed=before.changed, data=before.data)


class _Run:
    """One run for some nodes."""

    def __init__(self, ctx: PhaseContext, site: Site, nodes: Sequence[str], guids: Guids) -> None:
        self._ctx, self._nodes = ctx, nodes
        self._wanted: Wanted = wanted_partitions(site, nodes, guids)
        self._node_of = {int(guid, 16): node for node in nodes for guid in guids[node]}

    def go(self, ufm: Ufm, results: Results) -> Results:
        """Return the results of the nodes. Raises UfmError and its subclasses."""
        with UfmClient(ufm) as client:
            read_version(client.get("app/ufm_version"))
            changes = compare(self._wanted, read(client), self._node_of)
            told = self._told(changes)
            out = {node: _with(results[node], words) for node, words in told.items()}
            if self._ctx.check or not changes:
                return out
            left = self._change(client, changes, list(told))
        return out | {node: self._differs(node, out[node], left) for node in self._told(left)}

    def _change(self, client: UfmClient, changes: Collection[Change], nodes: Sequence[str]) -> list[Change]:
        """Carry the changes out; return what is still different. The evidence of these nodes is void from here on."""
        with Ledger.open(EnvPaths(self._ctx.root, self._ctx.env).database) as ledger:
            tokens = [ledger.change_begins(node, "partitions in UFM") for node in nodes]
            carry_out(client, changes)
            _, left = settle(client, self._wanted, self._node_of)
            for token in tokens:
                ledger.done(token, {"outcome": "differs" if left else "as requested"})
        return left

    def _told(self, changes: Collection[Change]) -> dict[str, list[str]]:
        """Return node -> the changes of its ports in words."""
        out: dict[str, list[str]] = {}
        for change in changes:
            for guid in sorted(change.ports):
                how = ("full member" if change.join[guid] else "limited member") if guid in change.join else "no member"
                words = f"UFM partition 0x{change.key:04x}: port {guid:016x} {how}"
                out.setdefault(self._node_of[guid], []).append(words)
        return out

    def _differs(self, node: str, before: NodeResult, left: Collection[Change]) -> NodeResult:
        finding = kinds.PARTITION.found(node, "; ".join(self._told(left)[node]), "not so after the change")
        found = result(node, [finding])
        return replace(found, changed=True, data={**before.data, **found.data})


def _with(before: NodeResult, words: list[str]) -> NodeResult:
    return replace(before, changed=True, data={**before.data, "changes": [*before.data.get("changes", ()), *words]})
