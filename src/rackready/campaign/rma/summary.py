"""The summary for the vendor: one document, as JSON and as Markdown. Text is made from the document alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rackready.campaign.rma import field_diagnostic, kernel_faults, stored
from rackready.campaign.rma.accused import KINDS, RULES, Fault, from_evidence, from_kernel
from rackready.campaign.rma.case import Gathered
from rackready.campaign.rma.gathering import Collector, Desk
from rackready.campaign.rma.parts import NodePart, parts_of, versions
from rackready.design.facts import node_facts
from rackready.evidence.store import EvidenceStore
from rackready.ledger.part_history import RETURNED, events_of
from rackready.ledger.store import CHANGE, Ledger
from rackready.model.evidence import EvidenceRecord
from rackready.model.profile import PlatformProfile

FORMAT = "rackready/rma/v1"
_TEXT = 4000
"""Characters of a ticket's text that the page shows; the whole ticket is in the archive."""


def made(desk: Desk, collectors: Sequence[Collector], results: Sequence[Gathered]) -> dict[str, Any]:
    """Return the document of a case."""
    case, facts = desk.case, node_facts(desk.site, desk.node)
    store = EvidenceStore.read_only(desk.ledger, desk.paths.raw)
    records = store.records(node=desk.node)
    parts = parts_of(case, facts, _last_gpus(desk.node, records, facts.platform.gpus))
    since = repaired_last(desk.ledger, case.node)
    log, not_read = kernel_faults.logged(case)
    faults = [*from_evidence(case.node, records, parts, since), *from_kernel(log, facts, case.id, since)]
    accused = [(KINDS[rule], place, rule, fault) for fault in faults for place, rule in fault.accused]
    known = {(part.kind, part.place) for part in parts}
    unlisted = sorted({place for kind, place, _, _ in accused if (kind, place) not in known})
    return {
        "format": FORMAT,
        "case": case.id,
        "node": desk.node,
        "serial": str(desk.declared.serial or ""),
        "rack": facts.rack,
        "platform": _platform(facts.platform),
        "begun": _time(case.begun),
        "reason": case.reason,
        "answers": {"node": desk.unreached or "yes"},
        "field_diagnostic": _diagnostic(results),
        "faults": [_fault(fault) for fault in faults],
        "not_read": not_read,
        "accused": [
            _accused(kind, place, parts, accused, desk.ledger)
            for kind, place in dict.fromkeys(item[:2] for item in accused)
        ],
        "accused_and_not_listed": unlisted,
        "parts": [asdict(part) for part in parts],
        "cables": [
            {"nic": nic.rdma_device, "rail": nic.rail, "switch": nic.switch, "port": nic.port} for nic in facts.nics
        ],
        "versions": versions(case),
        "measured": [_measured(record) for record in store.concluded(desk.node).values()],
        "gathered": [_gathered(collector, result) for collector, result in zip(collectors, results, strict=True)],
        "ticket": case.document(stored.TICKET, "ticket.json"),
        "rules": [asdict(rule) for rule in RULES],
    }


def _platform(platform: PlatformProfile) -> str:
    return f"{platform.product} ({platform.id})"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _last_gpus(node: str, records: Iterable[EvidenceRecord], count: int) -> list[str]:
    """Return the GPUs of the newest whole fingerprint of a node: the last that is known of a GPU that is lost now.

    In one without a GPU the numbers of the others close up, and would give it the serial of its neighbour.
    """
    found: list[str] = []
    for record in records:
        for item in record.fingerprints:
            if item.node == node and not item.unread and len(item.gpus) == count:
                found = list(item.gpus)
    return found


def repaired_last(ledger: Ledger, node: str) -> float:
    """Return when the node was repaired last, s since 1970; 0 for never.

    A node that came back from its vendor has such a record, too. A case that jobs kept from beginning repaired nothing.
    """
    done = [
        entry
        for entry in ledger.entries(node)
        if entry.status == "done" and (entry.operation, entry.desired) == (CHANGE, "repair")
    ]
    return max((entry.ended or entry.begun for entry in done), default=0.0)


def _fault(fault: Fault) -> dict[str, Any]:
    return {
        "code": fault.code,
        "where": fault.where,
        "text": fault.text,
        "gate": fault.gate,
        "first": fault.first.isoformat(timespec="seconds") if fault.first else "",
        "last": fault.last.isoformat(timespec="seconds") if fault.last else "",
        "times": fault.times,
        "runs": fault.runs,
        "accused": [{"part": place, "rule": rule} for place, rule in fault.accused],
    }


def _measured(record: EvidenceRecord) -> dict[str, Any]:
    """Return a gate's newest conclusion: what was measured, when, by which run and with which tools."""
    return {
        "gate": record.gate,
        "outcome": record.verdict.outcome.value,
        "started": record.started.isoformat(timespec="seconds"),
        "run": record.campaign,
        "commands": [raw.command for raw in record.raw],
        "tools": record.tool_versions,
        "evidence": record.id,
    }


def _accused(
    kind: str, place: str, parts: Sequence[NodePart], accused: Sequence[tuple[str, str, str, Fault]], ledger: Ledger
) -> dict[str, Any]:
    part = next((item for item in parts if (item.kind, item.place) == (kind, place)), NodePart(kind, place))
    events = events_of(ledger, serials=[part.serial]) if part.serial else []
    mine = [item for item in accused if item[:2] == (kind, place)]
    return {
        **asdict(part),
        "by_finding": sorted({fault.code for _, _, _, fault in mine}),
        "by_rule": sorted({rule for _, _, rule, _ in mine}),
        "returned_before": sum(event.event == RETURNED for event in events),
    }


def _diagnostic(results: Iterable[Gathered]) -> dict[str, Any]:
    found = next((item for item in results if item.name == field_diagnostic.NAME), None)
    if found is None or not found.facts:
        return {"verdict": "NOT RUN", "why": found.reason if found else "not asked for"}
    return dict(found.facts)


def _gathered(collector: Collector, result: Gathered) -> dict[str, Any]:
    return {
        "name": result.name,
        "what": collector.what,
        "gathered": not result.reason,
        "reason": result.reason,
        "note": result.note,
        "seconds": result.seconds,
        "files": [asdict(file) for file in result.files],
    }


def as_json(document: Mapping[str, Any]) -> str:
    """Return the document as JSON."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def as_markdown(document: Mapping[str, Any]) -> str:
    """Return the document as a page."""
    lines = [
        f"# {document['node']}: {document['platform']}, serial {document['serial'] or 'unknown'}",
        "",
        f"Case {document['case']}, begun {document['begun']}: {_cell(document['reason'])}",
        "",
    ]
    answer = document["answers"]["node"]
    if answer != "yes":
        lines += [f"**The node does not answer: {_cell(answer)}** Its parts are those that its BMC lists.", ""]
    diagnostic = document["field_diagnostic"]
    lines += ["## Field diagnostic", "", f"{diagnostic['verdict']}: {_cell(diagnostic.get('why', ''))}", ""]
    lines += _section("Accused parts", _accused_rows(document), "No rule places a fault in a part.")
    if document["accused_and_not_listed"]:
        names = ", ".join(document["accused_and_not_listed"])
        lines += [f"Accused, and listed by neither node nor BMC: {names}.", ""]
    lines += _section("Faults", _fault_rows(document), "No fail is on record since the last repair.")
    lines += [f"- Not read: {_cell(text)}" for text in document["not_read"]]
    lines += [""] if document["not_read"] else []
    lines += _section("Not gathered", _missing_rows(document), "Everything was gathered.")
    lines += _section("Gathered", _gathered_rows(document), "Nothing.")
    lines += _section("Measured", _measured_rows(document), "Nothing was measured.")
    lines += _section("Versions", [("What", "Version"), *document["versions"].items()], "None is known.")
    lines += _section("Parts", _part_rows(document["parts"]), "None is known.")
    lines += _section("Cables", _cable_rows(document), "The site has none.")
    lines += _ticket(document["ticket"])
    return "\n".join(lines).rstrip("\n") + "\n"


Rows = list[tuple[str, ...]]


def _section(title: str, rows: Rows, none: str) -> list[str]:
    """Return a table under its title. ``rows``: the first is the head."""
    if len(rows) < 2:  # noqa: PLR2004 - a head alone
        return [f"## {title}", "", none, ""]
    head, *body = rows
    table = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [f"## {title}", "", *table, *(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in body), ""]


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _accused_rows(document: Mapping[str, Any]) -> Rows:
    head = ("Part", "Slot", "Serial", "Part number", "Firmware", "Finding", "Returned before")
    return [
        head,
        *(
            (
                f"{item['kind']} {item['place']}".strip(),
                item["slot"],
                item["serial"],
                item["number"],
                item["firmware"],
                ", ".join(item["by_finding"]),
                str(item["returned_before"]),
            )
            for item in document["accused"]
        ),
    ]


def _fault_rows(document: Mapping[str, Any]) -> Rows:
    rows: Rows = [("Finding", "First", "Last", "Times", "Run", "Accuses")]
    for fault in document["faults"]:
        runs = fault["runs"]
        shown = ", ".join(runs if len(runs) < 3 else [runs[0], "...", runs[-1]])  # noqa: PLR2004 - first and last
        accused = ", ".join(item["part"] for item in fault["accused"]) or "no part"
        rows.append((fault["text"], fault["first"], fault["last"], str(fault["times"]), shown, accused))
    return rows


def _missing_rows(document: Mapping[str, Any]) -> Rows:
    rows: Rows = [("What", "Reason")]
    return rows + [(item["name"], item["reason"]) for item in document["gathered"] if not item["gathered"]]


def _gathered_rows(document: Mapping[str, Any]) -> Rows:
    rows: Rows = [("What", "Files", "MiB", "How, and what is not whole")]
    for item in document["gathered"]:
        if item["gathered"]:
            size = sum(file["size"] for file in item["files"]) / 2**20
            words = f"{item['what']}; {item['note']}" if item["note"] else item["what"]
            rows.append((item["name"], str(len(item["files"])), f"{size:.1f}", words))
    return rows


def _measured_rows(document: Mapping[str, Any]) -> Rows:
    rows: Rows = [("Gate", "Outcome", "When", "Run", "Tools", "Evidence")]
    for item in document["measured"]:
        tools = ", ".join(f"{name} {version}" for name, version in sorted(item["tools"].items()))
        rows.append((item["gate"], item["outcome"], item["started"], item["run"], tools, item["evidence"]))
    return rows


def _part_rows(parts: Iterable[Mapping[str, str]]) -> Rows:
    names = ("kind", "place", "slot", "serial", "number", "firmware", "model", "pci", "by")
    head = ("Kind", "Name", "Slot", "Serial", "Part number", "Firmware", "Model", "PCI address", "Told by")
    return [head, *(tuple(part[name] for name in names) for part in parts)]


def _cable_rows(document: Mapping[str, Any]) -> Rows:
    rows: Rows = [("NIC", "Rail", "Switch", "Port")]
    return rows + [(item["nic"], str(item["rail"]), item["switch"], item["port"]) for item in document["cables"]]


def _ticket(ticket: Any) -> list[str]:  # noqa: ANN401 - JSON of somebody else
    if not ticket:
        return []
    text = json.dumps(ticket, indent=1, ensure_ascii=False)
    more = " (cut; the whole is in ticket/ticket.json)" if len(text) > _TEXT else ""
    return [f"## Ticket{more}", "", *(f"    {line}" for line in text[:_TEXT].splitlines()), ""]
