"""The first contact by push: the agent, its configuration and keys, where a node has others or none.

What was put on a node is remembered in the ledger, so that a run with nothing to change logs in to no node for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackready.campaign.drained_phase import Results
from rackready.campaign.pull.service_interfaces import Agents
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext

AGENT = "pull:agent"
"""Operation of the ledger: what the first contact put on a node."""


def missing(ledger: Ledger, agents: Agents, nodes: Iterable[str]) -> list[str]:
    """Return the nodes that surely do not have all that they need."""
    return [node for node in nodes if not _has(ledger, node, agents.wanted(node))]


def _has(ledger: Ledger, node: str, wanted: str) -> bool:
    last = ledger.latest(node, AGENT)
    return last is not None and last.status == "done" and last.desired == wanted


def made(ctx: PhaseContext, ledger: Ledger, agents: Agents, nodes: Sequence[str]) -> Results:
    """Put the agent on nodes; return the results of those where it failed."""
    if not nodes:
        return {}
    for node in nodes:
        _close(ledger, node)
    tokens = {node: ledger.begin(node, AGENT, agents.wanted(node), {}).token for node in nodes}
    results = agents.push(ctx, nodes)
    for node, token in tokens.items():
        if results[node].outcome is Outcome.PASS:
            ledger.done(token)
        else:
            ledger.failed(token, results[node].message)
    return {node: result for node, result in results.items() if result.outcome is not Outcome.PASS}


def forgotten(ledger: Ledger, agents: Agents, node: str, why: str) -> None:
    """Record that a node does not have the agent that it was given: the next run puts it there again."""
    _close(ledger, node)
    ledger.failed(ledger.begin(node, AGENT, agents.wanted(node), {}).token, why)


def _close(ledger: Ledger, node: str) -> None:
    """End what a killed run left open: it is done again, for it changes nothing where it was done."""
    last = ledger.latest(node, AGENT)
    if last is not None and last.status == "intent":
        ledger.failed(last.token, "interrupted; done again")
