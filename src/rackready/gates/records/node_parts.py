"""Parts of a node and the programs that measure on it, read by every deploy. A changed list is a change of the node."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rackready.design.facts import node_facts
from rackready.evidence.store import EvidenceError, EvidenceStore
from rackready.format_error import FormatError
from rackready.gates.base import trouble
from rackready.gates.engine.runner import Connection, output_of
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats import printed
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.records.sanitize import clean
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Finding
from rackready.model.site import Site
from rackready.ondevice import node_parts as script

SEEN = "parts-seen"
"""Ledger operation of the last list of parts; its desired digest is that of the list in the evidence store."""
MEASURING = (
    *(
        f"{name}_perf{suffix}"
        for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
        for suffix in ("", "_mpi")
    ),
    *(
        "ib_write_bw",
        "ib_write_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_send_bw",
        "nvbandwidth",
        "dcgmi",
        "nv-hostengine",
    ),
    *(f"/usr/libexec/datacenter-gpu-manager-4/plugins/cuda{major}/nvbandwidth" for major in (11, 12, 13)),
    *("dcgmproftester11", "dcgmproftester12", "dcgmproftester13", "fio", "mpirun", "srun"),
)
"""Programs whose figures outlive a run: those of gates that load. Every look judges the other programs again."""
LIBRARIES = (
    "libnccl.so.2",
    "libnccl-net.so",
    "libdcgm.so.4",
    "libdcgm.so.3",
    "libcuda.so.1",
    "libibverbs.so.1",
    "libmlx5.so.1",
    "libmpi.so.40",
)
_TIMEOUT_S = 120.0
_SHOWN = 4
Kinds = Mapping[str, Mapping[str, str]]


PARTS_UNREADABLE = ErrorKind(
    "parts-unreadable",
    "list of parts unreadable",
    meaning="The list of the node's parts is incomplete, so it is unknown whether a part was replaced.",
    next_step="Run it again; if that does not help, check that python3 runs on the node.",
)
PARTS_LOST = ErrorKind(
    "parts-not-read-again",
    "parts that were seen before cannot be read",
    meaning="Parts that were read before cannot be read now, so it is unknown whether they are the same.",
    next_step="Run the named program on the node by hand; evidence counts only while the node's parts can be read.",
)


@dataclass(frozen=True, slots=True)
class PartsReading:
    """The parts of a node. ``digest``: of the list. ``changed``: differences that rackready did not make, in words."""

    digest: str
    changed: tuple[str, ...] = ()


def see(  # noqa: PLR0913, PLR0917 - nodes, connection and stores
    connection: Connection,
    site: Site,
    store: EvidenceStore,
    ledger: Ledger,
    campaign: str,
    nodes: Sequence[str],
    within_s: float,
) -> dict[str, PartsReading | Finding]:
    """Return the parts of nodes, or the finding that parts which were read before cannot be read now.

    Read again only if this campaign has not read them within ``within_s``. Record a changed list as a change of the
    node.
    """
    last = {node: ledger.latest(node, SEEN) for node in nodes}
    out: dict[str, PartsReading | Finding] = {
        node: PartsReading(entry.desired)
        for node, entry in last.items()
        if entry is not None and _fresh(entry, campaign, within_s)
    }
    left = [node for node in nodes if node not in out]
    with ThreadPoolExecutor(max_workers=max(1, min(len(left), 16))) as pool:
        found = dict(zip(left, pool.map(lambda node: _read(connection, site, node), left), strict=True))
    for node, parts in found.items():
        out[node] = parts if isinstance(parts, Finding) else _compared(store, ledger, campaign, node, parts, last[node])
    return out


def with_parts(prints: Mapping[str, Fingerprint | Finding], ledger: Ledger) -> dict[str, Fingerprint | Finding]:
    """Return the fingerprints with the digest of the last list of parts."""
    out = dict(prints)
    for node, found in prints.items():
        entry = ledger.latest(node, SEEN)
        if entry is not None and isinstance(found, Fingerprint):
            out[node] = found.model_copy(update={"parts": entry.desired})
    return out


Change = tuple[str, str, str]
"""Name of a part, its identity when it was seen last, its identity now; an identity is empty for no such part."""


def changes(before: Kinds, now: Kinds) -> list[Change]:
    """Return what differs between two lists, in the kinds that both times were read."""
    out = []
    for kind in sorted(before.keys() & now.keys()):
        then, here = before[kind], now[kind]
        out += [
            (name, then[name], here[name]) for name in sorted(then.keys() & here.keys()) if then[name] != here[name]
        ]
        out += [(name, then[name], "") for name in sorted(then.keys() - here.keys())]
        out += [(name, "", here[name]) for name in sorted(here.keys() - then.keys())]
    return out


def differences(before: Kinds, now: Kinds) -> list[str]:
    """Return the same in words."""
    return [_in_words(*change) for change in changes(before, now)]


def _in_words(name: str, then: str, here: str) -> str:
    if not here:
        return f"{name} ({then}) is gone"
    return f"{name} was {then}, is {here}" if then else f"{name} ({here}) is new"


def compare(
    connection: Connection, site: Site, store: EvidenceStore, ledger: Ledger, nodes: Sequence[str]
) -> dict[str, list[Change] | Finding]:
    """Return what differs from the parts that were seen last, or why that cannot be told. Nothing is recorded.

    Nothing differs on a node that rackready changed since: the next look records its parts.
    """
    with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), 16))) as pool:
        read = dict(zip(nodes, pool.map(lambda node: _read(connection, site, node), nodes), strict=True))
    return {node: _unrecorded(store, ledger, node, parts) for node, parts in read.items()}


def _unrecorded(
    store: EvidenceStore, ledger: Ledger, node: str, found: tuple[Kinds, Mapping[str, str]] | Finding
) -> list[Change] | Finding:
    if isinstance(found, Finding):
        return found
    parts, unread = found
    last = ledger.latest(node, SEEN)
    before = _stored(store, last)
    lost = sorted(unread.keys() & before.keys())
    if lost:
        return clean(PARTS_LOST.found(node, ", ".join(lost), "; ".join(f"{kind}: {unread[kind]}" for kind in lost)))
    by_us = last is not None and ledger.last_change(node).at > (last.ended or last.begun)
    return [] if by_us else changes(before, parts)


def _fresh(entry: LedgerEntry, campaign: str, within_s: float) -> bool:
    return (
        entry.status == "done"
        and entry.result.get("campaign") == campaign
        and time.time() - (entry.ended or 0.0) <= within_s
    )


def _read(connection: Connection, site: Site, node: str) -> tuple[Kinds, Mapping[str, str]] | Finding:
    """Return the parts of a node by kind, and kind -> reason for those that could not be read."""
    wanted = {
        "modules": [nic.rdma_device for nic in node_facts(site, node).nics],
        "programs": MEASURING,
        "libraries": LIBRARIES,
    }
    asked = command("parts", node, script, json.dumps(wanted, sort_keys=True), timeout_s=_TIMEOUT_S)
    answer = connection.run(node, asked.argv, stdin=asked.stdin, timeout_s=asked.timeout_s)
    output = output_of(asked, answer)
    bad = trouble(output, node, "reading of its parts")
    if bad is not None:
        return clean(bad)
    try:
        found = document(output, script.FORMAT, printed.NodeParts)
    except FormatError as error:
        return clean(PARTS_UNREADABLE.found(node, "a complete document", str(error)))
    return found["parts"], found["unread"]


def _compared(
    store: EvidenceStore,
    ledger: Ledger,
    campaign: str,
    node: str,
    found: tuple[Kinds, Mapping[str, str]],
    last: LedgerEntry | None,
) -> PartsReading | Finding:
    parts, unread = found
    before = _stored(store, last)
    lost = sorted(unread.keys() & before.keys())
    if lost:
        actual = "; ".join(f"{kind}: {unread[kind]}" for kind in lost)
        return clean(PARTS_LOST.found(node, ", ".join(lost), actual))
    digest = store.put_raw(json.dumps(parts, sort_keys=True, indent=0))
    changed = tuple(differences(before, parts))
    if last is not None and not before and last.desired != digest:
        changed = (f"the list of parts differs from {last.desired[:12]}, which is no longer stored here",)
    by_us = last is not None and ledger.last_change(node).at > (last.ended or last.begun)
    if changed and not by_us:
        ledger.done(ledger.change_begins(node, "parts"), {"changed": list(changed)})
    if changed:  # also where rackready changed the node: a role swaps no memory module
        _tell(ledger, campaign, node, changed, "info" if by_us else "warn")
    ledger.done(ledger.begin(node, SEEN, digest, {}).token, {"campaign": campaign})
    return PartsReading(digest, () if by_us else changed)


def _tell(ledger: Ledger, campaign: str, node: str, changed: Sequence[str], level: str) -> None:
    more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    words = "; ".join(changed[:_SHOWN]) + more
    text = f"changed since it was measured: {words}. Earlier evidence no longer counts."
    ledger.event(campaign, node, "validate", text, level)


def _stored(store: EvidenceStore, last: LedgerEntry | None) -> Kinds:
    """Return the last list; empty if there is none, or it is no longer on this machine."""
    if last is None:
        return {}
    try:
        found = json.loads(store.raw(last.desired))
    except (EvidenceError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
