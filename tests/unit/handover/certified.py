"""A node of the simulated rack's site with evidence of every gate, and its certificate."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore, new_id
from rackready.handover.certificate import issue, statement
from rackready.handover.certify import entries
from rackready.handover.keys import Keys, keys_of
from rackready.handover.policy import Moment, decide
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, EvidenceRecord, Fingerprint
from rackready.model.outcome import Criterion, Metric, Op, Outcome, Verdict
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import fingerprint

MEASURED = "node/gpu/performance/nvbandwidth"
BANDWIDTH = Verdict(
    outcome=Outcome.PASS,
    metrics=[
        Metric(name="host_to_device", target="node01/gpu0", value=55.25, unit="GB/s"),
        Metric(name="host_to_device", target="node01/gpu1", value=54.5, unit="GB/s"),
    ],
    criteria=[
        Criterion(
            metric="host_to_device", op=Op.GE, bound=52.0, unit="GB/s", label="floor", source="PCIe 5.0 x16, 82 %"
        )
    ],
)


def seen(root: Path, node: str = "node01", **changes: object) -> Fingerprint:
    """Return the fingerprint of a node of the site in its desired state."""
    digest = desired_digest(load_site("sim", root=root), node)
    return fingerprint(node=node, desired_digest=digest, **changes)


def measure(
    root: Path, node: str = "node01", found: Fingerprint | None = None, verdicts: dict[str, Verdict] | None = None
) -> None:
    """Record every gate of the site's set as passed, a minute ago, but for the verdicts that are given."""
    site, paths = load_site("sim", root=root), EnvPaths(root, "sim")
    at = datetime.now(UTC) - timedelta(minutes=1)
    given = {MEASURED: BANDWIDTH} | (verdicts or {})
    with Ledger.open(paths.database) as ledger:
        EvidenceStore.open(ledger, paths.raw).append(
            *(
                EvidenceRecord(
                    id=new_id(), campaign="c1", gate=gate, target=node, nodes=[node],
                    fingerprints=[found or seen(root, node)], verdict=given.get(gate, Verdict(outcome=Outcome.PASS)),
                    rackready_version="0", started=at, finished=at,
                )
                for gate in [entry.id for entry in entries(site) if entry.id != COVERAGE] + [COVERAGE]
            )
        )  # fmt: skip


def certify(root: Path, node: str = "node01", *, with_digests: bool = True) -> Keys:
    """Measure a node and give it a certificate. Returns the keys of the environment.

    ``with_digests=False``: as releases did that did not know the SHA-256 of records.
    """
    measure(root, node)
    site, paths = load_site("sim", root=root), EnvPaths(root, "sim")
    found, now = seen(root, node), datetime.now(UTC)
    with Ledger.open(paths.database) as ledger:
        store = EvidenceStore.open(ledger, paths.raw)
        records = store.valid(node, found.desired_digest, found)
        digests = store.digests([record.id for record in records.values()]) if with_digests else {}
    decision = decide(node, entries(site), records, {}, Moment(now.timestamp(), found.boot_id))
    about = {"site": site.name, "gateSet": site.gates.set, "campaign": "c1"}
    keys = keys_of(site, paths)
    issue(keys, statement(decision, found, records, about=about, issued=now, digests=digests))
    return keys


def alter(root: Path, gate: str, words: tuple[str, str] = ("54.5", "99.5")) -> str:
    """Change a record of a gate and the SHA-256 beside it, as one may who owns the database; return the record's id."""
    with closing(sqlite3.connect(EnvPaths(root, "sim").database.file)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        found, text = database.execute("SELECT id, record FROM evidence WHERE gate = ?", (gate,)).fetchone()
        changed = text.replace(*words)
        assert changed != text
        digest = hashlib.sha256(changed.encode()).hexdigest()
        database.execute("UPDATE evidence SET record = ?, sha256 = ? WHERE id = ?", (changed, digest, found))
    return str(found)
