"""Declared findings of gates, and bounds in `gate explain`: those predicted are those that a run applies."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from rackready.gates.engine.describe import explained
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.judging import common_findings
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind, FindingKind
from rackready.gates.judging.judge import Judge
from rackready.gates.judging.predicted_bounds import predicted
from rackready.gates.records.offline import Captured, evaluate, facts
from rackready.model.outcome import Criterion, Finding, Outcome
from tests.gates.support import text
from tests.gates.unshown import FOUND_WITHOUT_GATES, product_kinds

ROOT = Path(__file__).resolve().parents[2]
RING = "cluster/fabric/performance/nccl-all-reduce-ring"
WARM = FailKind(
    "test-warm", "{part} too warm", meaning="It is warm.", next_step="Cool {part}.", runbook="docs/runbooks/gpu.md"
)
UNTOLD = ErrorKind("test-untold", "untold", meaning="Nobody told.", next_step="{step}", steps=("Ask.", "Wait."))


def test_a_kind_makes_findings_and_their_outcome_is_its_own() -> None:
    judge = Judge()
    judge.fail("node01 gpu2", WARM, 80, 91, part="gpu2")
    judge.error("node01", UNTOLD, "words", "none", step="Ask.", nodes=["node02"])
    warm, untold = judge.verdict().findings
    assert warm == Finding(
        code="test-warm",
        where="node01 gpu2",
        what="gpu2 too warm",
        expected="80",
        actual="91",
        next_step="Cool gpu2.",
    )
    assert (untold.code, untold.next_step, untold.nodes) == ("test-untold", "Ask.", ["node02"])
    assert judge.verdict().outcome is Outcome.FAIL
    assert (WARM.runbook, UNTOLD.runbook) == ("docs/runbooks/gpu.md", "")


def test_a_value_that_the_words_need_is_not_left_out() -> None:
    with pytest.raises(KeyError, match="part"):
        WARM.found("node01", 80, 91)


def test_a_value_that_is_missing_is_an_error_with_the_words_of_its_kind() -> None:
    judge = Judge()
    assert not judge.equal("node01", WARM, 80, None, part="gpu2")
    (found,) = judge.verdict().findings
    assert (found.code, found.what, judge.verdict().outcome) == (
        "value-not-reported",
        "gpu2 too warm not reported",
        Outcome.ERROR,
    )


def test_a_code_is_declared_once() -> None:
    with pytest.raises(ValueError, match="finding code 'test-warm' - Expected: one declaration Actual: several"):
        FailKind("test-warm", "warm", meaning="It is warm.", next_step="Cool it.")


def test_a_finding_of_before_there_were_codes_is_read() -> None:
    old = {"where": "node01", "what": "NVLink down", "expected": "18", "actual": "17", "next_step": "Reseat it."}
    assert Finding.model_validate(old).code == ""


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("found", product_kinds().values(), ids=lambda found: found.code)
def test_each_kind_is_whole(found: FindingKind) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found.code), "kebab-case"
    assert found.title.strip()
    assert found.meaning.endswith("."), "a sentence"
    assert not places(found.meaning), "the meaning is the same at every place"
    assert found.next_step
    assert not found.steps or found.next_step == "{step}", "choices belong to a step that the call chooses"
    assert "" not in places(f"{found.title} {found.next_step}"), "places have names"
    named = re.search(r"docs/runbooks/[a-z0-9-]+\.md", " ".join((found.next_step, *found.steps)))
    assert named is None or found.runbook == named[0], "the step names the runbook that is declared"
    assert not found.runbook or (ROOT / found.runbook).is_file(), "the runbook is there"


def test_each_gate_declares_what_it_finds_once() -> None:
    common = {found.code for found in common_findings.FINDINGS}
    for gate_id, kind in all_gates().items():
        codes = [found.code for found in kind.findings]
        assert codes, gate_id
        assert len(codes) == len(set(codes)), gate_id
        assert not common & set(codes), gate_id


def test_a_kind_that_no_gate_declares_names_its_finder() -> None:
    """Kinds of what runs gates are found by that; of all others, the reference names who finds them."""
    assert {kind.code for kind in product_kinds().values() if kind.by} == {kind.code for kind in FOUND_WITHOUT_GATES}
    assert not {kind.code for kind in FOUND_WITHOUT_GATES} & {
        found.code for kind in all_gates().values() for found in kind.findings
    }


def test_few_kinds_leave_their_next_step_open() -> None:
    """Those that do take it from a vendor's catalogue, a table of limits or what the caller knows."""
    open_ = {found.code for found in product_kinds().values() if found.next_step == "{step}" and not found.steps}
    assert open_ == OPEN


OPEN = {
    "behind-siblings",
    "dcgm-diag-test-contradicts",
    "dcgm-diag-test-failed",
    "error-count-grew",
    "gate-not-run",
    "gpu-fallen-off-bus",
    "module-reading-out-of-limits",
    "xid",
}


def test_explain_shows_what_a_gate_declares_fails_first() -> None:
    known = facts("dgx_h100", 2)
    found = explained(gate(RING), known)["findings"]
    assert (
        {item["code"] for item in found}
        == {kind.code for kind in all_gates()[RING].findings}
        >= {"nccl-rail-share", "nccl-wrong-results"}
    )
    assert [item["outcome"] for item in found] == sorted(
        (item["outcome"] for item in found), key=lambda outcome: outcome != "fail"
    )
    share = next(item for item in found if item["code"] == "nccl-rail-share")
    assert share["next_steps"] == [
        "Check this rail's link rate, PCIe width and switch port: docs/runbooks/rail-slow.md"
    ]
    assert share["runbook"] == "docs/runbooks/rail-slow.md"


@pytest.mark.parametrize(
    ("gate_id", "outputs"),
    [
        ("node/gpu/sanity/inventory", {"inventory": "nvml/dgx_h100_healthy.json"}),
        (
            "node/gpu/performance/nvbandwidth",
            {
                "before": "smi/dgx_h100_healthy.xml",
                "copy-0": "nvbandwidth/dgx_h100_healthy.json",
                "after": "smi/dgx_h100_healthy.xml",
            },
        ),
    ],
    ids=["inventory", "nvbandwidth"],
)
def test_bounds_that_are_foreseen_are_those_that_a_run_applies(gate_id: str, outputs: dict[str, str]) -> None:
    made = gate(gate_id, {"launches": 1} if "copy-0" in outputs else {})
    known = facts("dgx_h100")
    texts = {key: Captured(text(name), seconds=60) for key, name in outputs.items()}
    verdict = evaluate(made, known, made.plan(known, list(known.nodes))[0], texts)
    applied = [
        item for item in verdict.criteria if item.label != "fleet" and item.metric != "gpus_reported"
    ]  # the reading's own
    assert list(predicted(made, known, list(known.nodes))) == applied != []


def bounds(gate_id: str, nodes: int, platform: str = "dgx_h100") -> list[tuple[str, float]]:
    known = facts(platform, nodes)
    found: tuple[Criterion, ...] = predicted(gate(gate_id), known, list(known.nodes))
    return [(item.label, round(item.bound, 1)) for item in found]


def test_bounds_of_runs_over_several_nodes_are_computed_for_as_many() -> None:
    assert bounds(RING, 2) == [("ceiling", 408.0), ("reference", 368.0), ("floor", 312.8)]
    assert bounds(RING, 40) == [("ceiling", 408.0), ("reference", 368.0), ("floor", 278.1)]
    assert bounds("pair/fabric/performance/ib-write-bw", 2) == [
        ("ceiling", 408.0),
        ("reference", 391.8),
        ("floor", 372.2),
    ]
    assert bounds("pair/fabric/performance/ib-write-bw", 2, "r760xa_l4") == [], "no NIC, no bound"
    assert bounds("node/gpu/validation/dcgm-r1", 1) == [("identity", 8.0)]
    assert bounds("node/gpu/sanity/xid", 1) == []
