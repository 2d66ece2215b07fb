"""Next steps that a reader can take: for an incomplete output, and for outputs that are handed in."""

from __future__ import annotations

import re

import pytest

from rackready.gates.base import AGAIN
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import Captured, evaluate, facts
from rackready.model.outcome import Outcome
from tests.gates.support import Case, Said, judge, text

SMI = text("smi/dgx_h100_healthy.xml")
GIVE_WHOLE = (
    "Give the complete output of the gate's command (`rackready gate show` lists it); "
    "if that does not help, attach the file to a bug report."
)


@pytest.mark.parametrize(
    ("gate_id", "key", "given", "says"),
    [
        (
            "node/gpu/sanity/inventory",
            "inventory",
            SMI,
            (
                "node01: GPU inventory unreadable - Expected: a complete inventory document "
                "Actual: XML (nvidia_smi_log), not JSON."
            ),
        ),
        (
            "node/gpu/sanity/inventory",
            "inventory",
            text("nvml/dgx_h100_healthy.json")[:200],
            (
                "node01: GPU inventory unreadable - Expected: a complete inventory document "
                "Actual: JSON cut off or damaged at line 9 column 13."
            ),
        ),
        (
            "node/host/sanity/clock",
            "read",
            SMI,
            (
                "node01: clock unreadable - Expected: a complete document of readings "
                "Actual: XML (nvidia_smi_log), not JSON."
            ),
        ),
    ],
)
def test_an_output_that_was_handed_in_has_no_hash(gate_id: str, key: str, given: str, says: str) -> None:
    known, made = facts("dgx_h100", 1), gate(gate_id)
    run = made.plan(known, ["node01"])[0]
    verdict = evaluate(made, known, run, {key: Captured(given)})
    assert re.sub(r"line \d+ column \d+", "line 9 column 13", str(verdict.findings[0])) == f"{says} {GIVE_WHOLE}"
    assert verdict.outcome is Outcome.ERROR


def test_an_output_that_rackready_recorded_has_one() -> None:
    verdict = judge("node/gpu/sanity/inventory", Case("xml", {"inventory": Said(SMI)}, Outcome.ERROR))
    assert verdict.findings[0].next_step == AGAIN


def test_nccl_that_tells_no_kinds_of_paths_is_run_with_the_subsystem_that_does() -> None:
    table = text("nccl/dgx_h100_8_healthy.txt")
    silent = "\n".join(line for line in table.splitlines() if not re.search(r"NCCL INFO (?:Pattern |.*type )", line))
    assert silent != table.rstrip("\n")
    verdict = judge(
        "node/gpu/performance/nccl-all-reduce",
        Case("no GRAPH", {"launch0": Said(silent)}, Outcome.ERROR, (), {"launches": 1}),
    )
    wanted = (
        "node01: NCCL did not report how its GPUs talk - Expected: channels between GPUs and the kind of "
        "their path Actual: no kind of path (subsystem GRAPH). Run with NCCL_DEBUG=INFO and "
        "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,GRAPH: NET logs the HCAs, P2P the channels between GPUs, "
        "GRAPH the kinds of their paths."
    )
    assert wanted in [str(finding) for finding in verdict.findings]
    assert verdict.outcome is Outcome.ERROR
