"""The report of a campaign: JSON for machines, HTML (one file, nothing from outside) for people, with the same content."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from rackready import __version__
from rackready.design.check_gates import today, warnings
from rackready.design.site import load_site
from rackready.evidence import heat
from rackready.evidence.distribution import describe, picture, strips
from rackready.evidence.junit import junit
from rackready.evidence.store import EvidenceError, EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths

SCHEMA = "rackready/report/v1"
COVERAGE = "node/all/sanity/coverage"
DETAILED = 128
"""Sites of more nodes get a page with every node in its map, and details of those nodes and runs that did not pass."""
LONGEST_RAW = 40_000
"""Characters of one raw output on the page."""
_GOOD = frozenset({"pass", "skip"})
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of nothing."""
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


class ReportError(RackreadyError):
    """A report cannot be made."""


def write_reports(root: Path, env: str, campaign: str) -> tuple[Path, Path]:
    """Write the report of a campaign and return the paths of (HTML, JSON), readable by their owner alone; the same as JUnit XML lies beside them.

    A node that the campaign found in order already shows its newest evidence, with the campaign that measured it.
    Raises RackreadyError when the site or the ledger cannot be read.
    """
    paths = EnvPaths(root, env)
    document = build(load_site(env, root=root), paths, campaign)
    stem = paths.reports / _SAFE.sub("_", campaign)
    html, json_file = stem.with_name(f"{stem.name}.html"), stem.with_name(f"{stem.name}.json")
    _write(json_file, json.dumps(document, indent=2) + "\n")
    _write(stem.with_name(f"{stem.name}.junit.xml"), junit(document))
    _write(html, render(document, _raw(paths, document)))
    return html, json_file


def build(site: Site, paths: EnvPaths, campaign: str) -> dict[str, Any]:
    """Return the report as one plain document."""
    ledger = Ledger.read_only(paths.database)
    try:
        store = EvidenceStore.read_only(ledger, paths.raw)
        known = {row["id"]: row for row in ledger.campaigns()}
        states = {row.name: row for row in ledger.states()}
        nodes = [_node(store, node.name, node.serial or "", states.get(node.name)) for node in site.nodes()]
        runs = [_entry(record) for record in store.records(campaign=campaign) if len(record.nodes) > 1]
        events = [{"at": _time(event.at), **{key: asdict(event)[key] for key in ("node", "phase", "level", "text")}} for event in ledger.events(campaign)]
    finally:
        ledger.close()
    row = known.get(campaign, {})
    return {
        "schema": SCHEMA,
        "rackready": __version__,
        "env": paths.env,
        "site": site.name,
        "campaign": {"id": campaign, "kind": row.get("kind"), "status": row.get("status"), "begun": _time(row.get("begun")), "ended": _time(row.get("ended"))},
        "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        "summary": _summary(nodes),
        "racks": heat.racks(site, nodes),
        "nodes": nodes,
        "runs": runs,
        "declared_skips": _declared(site),
        "warnings": warnings(site, today()),
        "events": events,
    }


def _declared(site: Site) -> list[dict[str, Any]]:
    """Return every declared skip, kill switches that hold included: those say until when and by whom, and are for all nodes."""
    skips: list[dict[str, Any]] = [skip.model_dump(mode="json") for skip in site.gates.skip]
    off = [item for item in site.gates.disabled if today() <= item.until]
    return skips + [{**item.model_dump(mode="json"), "nodes": ["all"], "reason": item.said()} for item in off]


def _summary(nodes: list[dict[str, Any]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for node in nodes:
        out[node["state"]] = out.get(node["state"], 0) + 1
    return dict(sorted(out.items()))


def _node(store: EvidenceStore, name: str, serial: str, row: Any) -> dict[str, Any]:  # noqa: ANN401
    newest: dict[str, EvidenceRecord] = {}
    for record in store.records(target=name):
        newest[record.gate] = record
    proven = newest.pop(COVERAGE, None)
    fingerprint = next((item for record in reversed(list(newest.values())) for item in record.fingerprints if item.node == name), None)
    return {
        "name": name,
        "serial": serial,
        "state": row.state.value if row else "declared",
        "reason": row.reason if row else "",
        "outcome": _worst(newest.values()),
        "fingerprint": fingerprint.model_dump(mode="json") if fingerprint else None,
        "gates": [_entry(record) for record in newest.values()],
        "coverage": _coverage(proven),
    }


def _worst(records: Any) -> str:  # noqa: ANN401
    order = [Outcome.PASS, Outcome.SKIP, Outcome.NOT_RUN, Outcome.ERROR, Outcome.FAIL]
    return max((record.verdict.outcome for record in records), key=order.index, default=Outcome.NOT_RUN).value


def _coverage(record: EvidenceRecord | None) -> dict[str, Any]:
    if record is None:
        return {"outcome": Outcome.NOT_RUN.value, "counts": {}, "unmeasured": [], "skipped": {}, "measured_by": {}}
    return {"outcome": record.verdict.outcome.value, **{key: record.inputs.get(key, {}) for key in ("counts", "unmeasured", "skipped", "measured_by")}}


def _entry(record: EvidenceRecord) -> dict[str, Any]:
    document = record.model_dump(mode="json", exclude={"fingerprints"})
    verdict = document.pop("verdict")
    verdict["findings"] = [{**finding, "text": str(kept)} for finding, kept in zip(verdict["findings"], record.verdict.findings, strict=True)]
    inputs = dict(document.pop("inputs"))
    return {
        "title": inputs.pop("title", record.gate),
        **document,
        "inputs": inputs,
        **verdict,
        "seconds": round((record.finished - record.started).total_seconds(), 1),
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _raw(paths: EnvPaths, document: dict[str, Any]) -> dict[str, str]:
    """Return the raw outputs that the page shows, by hash: all of a small site, else those of records that are no pass.

    One that is damaged is said to be; one that is longer than a page bears is cut, and says how to read the whole.
    """
    small = len(document["nodes"]) <= DETAILED
    records = [item for node in document["nodes"] for item in node["gates"]] + document["runs"]
    wanted = {raw[key] for item in records if small or item["outcome"] not in _GOOD for raw in item["raw"] for key in ("stdout_sha256", "stderr_sha256")}
    ledger = Ledger.read_only(paths.database)
    try:
        store = EvidenceStore.read_only(ledger, paths.raw)
        return {digest: text for digest in sorted(wanted - {_EMPTY}) if (text := _shown(store, digest))}
    finally:
        ledger.close()


def _shown(store: EvidenceStore, digest: str) -> str:
    try:
        text = store.raw(digest)
    except EvidenceError as error:
        return f"[{error}]"
    if len(text) <= LONGEST_RAW:
        return text
    return f"{text[:LONGEST_RAW]}\n[cut: {len(text) - LONGEST_RAW} more characters; the whole: rackready report --raw {digest}]"


def render(document: dict[str, Any], raw: Mapping[str, str] | None = None) -> str:
    """Return the HTML of a report document, with raw outputs by hash. Every value is escaped; nothing is loaded from outside."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rackready.evidence", "."), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    records = [item for node in document["nodes"] for item in node["gates"]] + document["runs"]
    small = len(document["nodes"]) <= DETAILED
    return environment.get_template("report.html.j2").render(
        report=document,
        raw=raw or {},
        signs=heat.SIGNS,
        table=heat.gate_table(document["nodes"] if small else [node for node in document["nodes"] if node["outcome"] not in _GOOD]),
        pairs=heat.pairs(document["runs"]),
        strips=[{**describe(strip), "picture": picture(strip)} for strip in strips(records)],
        shown=[node for node in document["nodes"] if small or node["outcome"] not in _GOOD],
        runs=[item for item in document["runs"] if small or item["outcome"] not in _GOOD],
    )


def _write(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        raise ReportError(
            f"{path}: the report cannot be written - Expected: a writable folder Actual: {error.strerror}. Free disk space, then run `rackready report`."
        ) from error
