"""Whether the records behind a certificate are as they were certified: it has the SHA-256 of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackready.evidence.store import EvidenceStore
from rackready.model.commands import repair

_STEP = (
    f"Find out who changed the database. Then {repair('{}')}: everything is measured again, and "
    "the node is certified anew."
)
_SHORT = 12
"""Digits of a digest in messages."""


def altered(store: EvidenceStore, statement: Mapping[str, Any]) -> list[str]:
    """Return the records that differ from those certified, or are gone. Those without SHA-256 are not compared."""
    node = str(statement["subject"][0]["name"])
    gates = [item for item in statement["predicate"]["gates"] if item.get("recordSha256")]
    now = store.digests([item["record"] for item in gates])
    return [
        f"{node}: record {item['record']} of {item['id']} - Expected: sha256 {item['recordSha256'][:_SHORT]}, as "
        f"certified Actual: {now.get(item['record'], 'no such record')[:_SHORT]}. {_STEP.format(node)}"
        for item in gates
        if now.get(item["record"]) != item["recordSha256"]
    ]


def changed_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the records that two statements name with different SHA-256: signing the later would bless a change."""
    node = str(after["subject"][0]["name"])
    then = {item["record"]: item.get("recordSha256") for item in before["predicate"]["gates"]}
    return [
        f"{node}: record {item['record']} of {item['id']} - Expected: sha256 {then[item['record']][:_SHORT]}, as in "
        f"the certificate on file Actual: {str(item.get('recordSha256'))[:_SHORT]}. {_STEP.format(node)}"
        for item in after["predicate"]["gates"]
        if then.get(item["record"]) and then[item["record"]] != item.get("recordSha256")
    ]


def unproven(statement: Mapping[str, Any]) -> str:
    """Return what a certificate of an older release leaves open; "" where it has the SHA-256 of every record."""
    gates = statement["predicate"]["gates"]
    lacking = sum(not item.get("recordSha256") for item in gates)
    if not lacking:
        return ""
    return f"{lacking} of {len(gates)} records without SHA-256: not verified that they are as certified"
