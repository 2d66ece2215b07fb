"""Edits of the site file in the middle of an upgrade: a version set that nodes of the upgrade neither have nor get."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.design.names import listed
from rackready.model.problems import Message
from rackready.model.upgrade import NodeRecord, NodeStep, SetChoice, UpgradeRecord

_STEP = "Put the former set into the site file until the upgrade has ended, or end it with `rackready upgrade --abort`."


def edited(record: UpgradeRecord, given: Mapping[str, SetChoice]) -> list[Message]:
    """Return the nodes of an open upgrade that the site file gives neither what it gave before nor the new set."""
    wrong: dict[SetChoice, list[str]] = {}
    for node, found in record.nodes.items():
        if node in given and given[node] not in {found.written, record.to}:
            wrong.setdefault(given[node], []).append(node)
    return _messages(record, wrong)


def against(record: UpgradeRecord, seen: Mapping[str, SetChoice]) -> list[Message]:
    """Return the nodes of an open upgrade that other work would judge by, or bring to, a set that they do not have."""
    wrong: dict[SetChoice, list[str]] = {}
    for node, choice in seen.items():
        found = record.nodes.get(node)
        if found is not None and choice not in _right(record, found):
            wrong.setdefault(choice, []).append(node)
    return _messages(record, wrong)


def _right(record: UpgradeRecord, node: NodeRecord) -> set[SetChoice]:
    if node.step is NodeStep.WAITING:
        return {node.former}
    return {record.to} if node.step is NodeStep.READY else {node.former, record.to}


def _messages(record: UpgradeRecord, wrong: Mapping[SetChoice, list[str]]) -> list[Message]:
    expected = f"as upgrade {record.id} to {record.to} has it, which is {record.state.value}"
    return [Message(listed(names), "version set", expected, choice, _STEP) for choice, names in wrong.items()]
