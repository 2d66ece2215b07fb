"""Fingerprints and records for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rackready.handover.policy import Moment
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.profile import GateSetEntry

T0 = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW = Moment(at=T0.timestamp() + 3600, boot_id="b1")
ENTRIES = [
    GateSetEntry(id="node/gpu/sanity/versions"),
    GateSetEntry(id="node/gpu/validation/dcgm-r3"),
    GateSetEntry(id="node/cpu/sanity/extra", required=False),
]


def fingerprint(**changes: object) -> Fingerprint:
    values = {
        "node": "node01", "chassis_serial": "S1", "gpus": ["G0", "G1"], "nics": ["mlx5_0=aa"], "driver": "580.173.02",
        "vbios": ["96", "96"],
        "nic_firmware": ["28"], "kernel": "6.1.0", "desired_digest": "d1", "boot_id": "b1",
    }  # fmt: skip
    return Fingerprint.model_validate(values | changes)


def record(
    gate: str, outcome: Outcome = Outcome.PASS, *, minutes: int = 0, findings: list[Finding] | None = None
) -> EvidenceRecord:
    return EvidenceRecord(
        id=f"{minutes:04d}-{gate}",
        campaign="c1",
        gate=gate,
        target="node01",
        nodes=["node01"],
        fingerprints=[fingerprint()],
        verdict=Verdict(outcome=outcome, findings=findings or []),
        rackready_version="0.1.0",
        started=T0 + timedelta(minutes=minutes),
        finished=T0 + timedelta(minutes=minutes + 1),
    )


def good() -> dict[str, EvidenceRecord]:
    return {entry.id: record(entry.id) for entry in ENTRIES}
