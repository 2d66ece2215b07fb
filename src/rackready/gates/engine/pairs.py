"""Pairs of nodes, and which end of a pair is bad, by passes and fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rackready.gates.base import FinishedRun
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.place import Place

_TWO = 2


NO_GOOD_PARTNER = ErrorKind(
    "no-good-partner",
    "not measured",
    meaning="The node was measured with bad partners only, so nothing is known about it.",
    next_step="Repair {partners}, or run the gate with another partner.",
)

FINDINGS = (NO_GOOD_PARTNER,)


def rounds(nodes: list[str]) -> list[list[tuple[str, str]]]:
    """Return rounds of disjoint pairs, so that every node is in at least one pair.

    For an odd number of nodes, a second round pairs the last with the first. Fewer than two nodes: no rounds.
    """
    pairs = [(nodes[place], nodes[place + 1]) for place in range(0, len(nodes) - 1, 2)]
    if len(nodes) < _TWO:
        return []
    return [pairs, [(nodes[0], nodes[-1])]] if len(nodes) % 2 else [pairs]


def _ends(item: FinishedRun) -> tuple[str, str, int]:
    about = item.run.about
    return about["first"], about["second"], int(about["rail"])


def _good(done: Sequence[FinishedRun]) -> dict[int, list[str]]:
    """Return the nodes whose NIC passed, by rail."""
    out: dict[int, list[str]] = defaultdict(list)
    for item in done:
        first, second, rail = _ends(item)
        if item.verdict.outcome is Outcome.PASS:
            out[rail] += [first, second]
    return out


def retests(done: Sequence[FinishedRun]) -> list[tuple[str, str, int]]:
    """Return (node, third partner, rail) for each end of a bad run that is not blamed already.

    The partner is a node whose NIC on that rail passed. If there is none (two nodes, or a rail that is bad everywhere),
    the ends cannot be told apart and nothing is measured again.
    """
    good = _good(done)
    out: list[tuple[str, str, int]] = []
    for item in done:
        first, second, rail = _ends(item)
        if item.verdict.outcome is Outcome.PASS:
            continue
        partners = [node for node in dict.fromkeys(good[rail]) if node not in {first, second}]
        for place, node in enumerate(node for node in (first, second) if node not in item.verdict.blamed):
            if partners and not any((node, rail) == (seen, on) for seen, _, on in out):
                out.append((node, partners[place % len(partners)], rail))
    return out


def attribute(done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
    """Return each node's verdicts. An end that failed with one partner but passed with another is acquitted."""
    seen: dict[tuple[str, int], list[tuple[str, Verdict]]] = defaultdict(list)
    for item in done:
        first, second, rail = _ends(item)
        seen[first, rail].append((second, item.verdict))
        seen[second, rail].append((first, item.verdict))
    out: dict[str, list[Verdict]] = defaultdict(list)
    for (node, rail), tests in seen.items():
        out[node] += _of_nic(node, rail, tests, seen)
    return dict(out)


def _of_nic(
    node: str, rail: int, tests: list[tuple[str, Verdict]], seen: dict[tuple[str, int], list[tuple[str, Verdict]]]
) -> list[Verdict]:
    bad = [(partner, verdict) for partner, verdict in tests if verdict.outcome is not Outcome.PASS]
    passed = [(partner, verdict) for partner, verdict in tests if verdict.outcome is Outcome.PASS]
    if not bad:
        return [verdict for _, verdict in passed]
    own = [verdict for _, verdict in bad if node in verdict.blamed]
    if own:
        return [_of_node(verdict, node) for verdict in own]
    if len({partner for partner, _ in bad}) >= _TWO and not passed:
        return [
            _with_remark(
                verdict,
                node,
                f"it fails with {' and with '.join(sorted({partner for partner, _ in bad}))}: {node}'s end of rail "
                f"{rail} is bad",
            )
            for _, verdict in bad[:1]
        ]
    if passed:
        pair = [verdict for partner, verdict in bad if partner not in verdict.blamed and _passed(seen[partner, rail])]
        acquitted = [verdict for _, verdict in passed]
        return (
            acquitted
            if not pair
            else [_with_remark(pair[0], node, "both ends pass with other partners: the path between these two is bad")]
        )
    others = [verdict for partner, verdict in bad if partner in verdict.blamed]
    if others:
        return [Verdict(outcome=Outcome.ERROR, findings=[unmeasured(Place(node, f"rail {rail}"), [bad[0][0]])])]
    return [_with_remark(bad[0][1], node, f"suspects: {node} and {bad[0][0]}; no third partner could tell them apart")]


def _of_node(verdict: Verdict, node: str) -> Verdict:
    """Return the verdict without the findings about the other end."""
    mine = [finding for finding in verdict.findings if _on_part(finding, node)]
    return verdict.model_copy(update={"findings": mine or verdict.findings, "blamed": [node]})


def _on_part(finding: Finding, node: str) -> bool:
    """Return whether a finding is about a part of this node; one about all of it tells nothing about its end."""
    return finding.node == node and bool(finding.part)


def _passed(tests: list[tuple[str, Verdict]]) -> bool:
    return any(verdict.outcome is Outcome.PASS for _, verdict in tests)


def _with_remark(verdict: Verdict, node: str, words: str) -> Verdict:
    findings = [finding.model_copy(update={"where": f"{finding.where} [{words}]"}) for finding in verdict.findings]
    return verdict.model_copy(update={"findings": findings, "blamed": [node]})


def unmeasured(where: str, partners: Sequence[str]) -> Finding:
    """Return the finding that an end (``where``) was measured with bad partners only, which proves nothing about it."""
    names, several = ", ".join(partners), len(partners) > 1
    return NO_GOOD_PARTNER.found(
        where,
        "a partner with a good link",
        f"its only partner{'s' if several else ''} {names} {'are' if several else 'is'} bad",
        partners=names,
    )


def bystander(verdict: Verdict, node: str) -> Verdict:
    """Return a node's verdict in a bad run that blames others: its own findings, or that it was not measured."""
    if any(_on_part(finding, node) for finding in verdict.findings):
        return _of_node(verdict, node)
    return verdict.model_copy(
        update={"outcome": Outcome.ERROR, "findings": [unmeasured(node, verdict.blamed)], "blamed": []}
    )


def retests_of_whole_nodes(done: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    """Return (node, third partner) for each end of a bad whole-node run that is not blamed already."""
    good = [node for item in done if item.verdict.outcome is Outcome.PASS for node in item.run.nodes]
    out: list[tuple[str, str]] = []
    for item in done:
        if item.verdict.outcome is Outcome.PASS:
            continue
        partners = [node for node in dict.fromkeys(good) if node not in item.run.nodes]
        for place, node in enumerate(node for node in item.run.nodes if node not in item.verdict.blamed):
            if partners:
                out.append((node, partners[place % len(partners)]))
    return out


def attribute_whole_nodes(done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
    """Return each node's verdicts of whole-node runs. A node that passed with some partner is acquitted unless blamed.

    If all ends of a bad run passed with others, the path between them is bad: re-measuring must not hide a fail. A node
    that had only bad partners was not measured.
    """
    out: dict[str, list[Verdict]] = {}
    good = {node for item in done if item.verdict.outcome is Outcome.PASS for node in item.run.nodes}
    for node in dict.fromkeys(node for item in done for node in item.run.nodes):
        mine = [item for item in done if node in item.run.nodes]
        blamed = [_of_node(item.verdict, node) for item in mine if node in item.verdict.blamed]
        path = [
            _with_remark(item.verdict, node, "both ends pass with other partners: the path between these two is bad")
            for item in mine
            if item.verdict.outcome is not Outcome.PASS and not item.verdict.blamed and good.issuperset(item.run.nodes)
        ]
        passed = [item.verdict for item in mine if item.verdict.outcome is Outcome.PASS]
        suspected = [
            item.verdict for item in mine if item.verdict.outcome is not Outcome.PASS and not item.verdict.blamed
        ]
        out[node] = blamed or path[:1] or passed or suspected[-1:] or [bystander(mine[-1].verdict, node)]
    return out
