"""Kinds of findings that no gate test shows, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.drivers.cabling_check import findings as cabling_findings
from rackready.drivers.ib import findings as ib_findings
from rackready.drivers.ib_fabric import findings as ib_fabric_findings
from rackready.drivers.passthrough import findings as passthrough_findings
from rackready.drivers.switch import findings as switch_findings
from rackready.drivers.ufm import findings as ufm_findings
from rackready.evidence.damage import DAMAGED, DAMAGED_FAIL, OUTPUT_LOST
from rackready.gates.engine import mps_pause
from rackready.gates.engine.registry import all_gates
from rackready.model.finding_kinds import KINDS, FindingKind, Kinds

FOUND_WITHOUT_GATES: Kinds = (
    *(*switch_findings.FINDINGS, *cabling_findings.FINDINGS, *ib_findings.FINDINGS),
    *(*ib_fabric_findings.FINDINGS, *ufm_findings.FINDINGS),
    *passthrough_findings.FINDINGS,
    *(*mps_pause.FINDINGS, DAMAGED, DAMAGED_FAIL, OUTPUT_LOST),
)
"""Kinds that no gate finds: they are named here so that the reference has them."""

_NO_GATE = (
    "no gate finds it: tests/unit/fabric/test_verify.py, tests/unit/infiniband, tests/unit/ufm and "
    "tests/unit/evidence/test_damage.py show it"
)

NO_TEST_SHOWS: Mapping[str, str] = dict.fromkeys(
    (found.code for found in FOUND_WITHOUT_GATES if found not in mps_pause.FINDINGS), _NO_GATE
)
"""Code -> why no test shows it."""


def product_kinds() -> dict[str, FindingKind]:
    """Return every kind of finding of ours by its code, sorted; tests declare some for themselves (``test-...``)."""
    all_gates()  # imports every module that declares some
    return {code: kind for code, kind in sorted(KINDS.items()) if not code.startswith("test-")}
