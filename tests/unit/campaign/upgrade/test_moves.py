"""A wave as a campaign: its site, and the kinds of what went wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rackready.campaign import step
from rackready.campaign.controller import Finished
from rackready.campaign.summary import NodeSummary
from rackready.campaign.upgrade import moves
from rackready.campaign.upgrade.moves import Moves
from rackready.drivers.scheduler.places import DRAIN, RELEASE
from rackready.evidence.store import EvidenceStore
from rackready.handover.run import PARTNER_OF
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import TOGETHER, NodeResult
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.campaign.upgrade.upgrade_sites import record_of, site_of

RECORD = SimpleNamespace(
    gate="node/gpu/sanity/ecc",
    verdict=SimpleNamespace(outcome=Outcome.FAIL, findings=[SimpleNamespace(code="ecc-uncorrectable")]),
)
GOOD = SimpleNamespace(gate="node/gpu/sanity/xid", verdict=SimpleNamespace(outcome=Outcome.PASS, findings=[]))


def store(*records: Any) -> EvidenceStore:
    return cast("EvidenceStore", SimpleNamespace(records=lambda **_: list(records)))


def kinds(result: dict[str, Any], found: EvidenceStore, *, findings: list[Any] | None = None) -> list[str]:
    row = NodeSummary("node01", "x", result["phase"], result["outcome"], changed=False, reason="", findings=findings)
    made = moves._result(row, Finished("c1", {"node01": result}, resumed=False), found)
    return list(made["kinds"])


@pytest.mark.parametrize(
    ("result", "found", "findings", "expected"),
    [
        ({"phase": "handover", "outcome": "pass"}, store(RECORD), None, []),
        (
            {"phase": "validate", "outcome": "fail"},
            store(RECORD, GOOD),
            None,
            ["node/gpu/sanity/ecc ecc-uncorrectable"],
        ),
        ({"phase": "validate", "outcome": "fail"}, store(), ["node01: in words"], ["validate fail"]),
        ({"phase": "provision", "outcome": "fail"}, store(), [{"code": "part-missing"}], ["provision part-missing"]),
        (
            {"phase": "install", "outcome": "fail", "broken": ["nvidia_driver : change | Load it"]},
            store(),
            None,
            ["install nvidia_driver : change | Load it"],
        ),
        ({"phase": "install", "outcome": "error"}, store(), None, ["install error"]),
    ],
    ids=["good", "a gate", "words only", "codes of a phase", "a task", "nothing known"],
)
def test_kinds_are_codes_and_never_words(
    result: dict[str, Any], found: EvidenceStore, findings: list[Any] | None, expected: list[str]
) -> None:
    assert kinds(result, found, findings=findings) == expected


def test_a_result_says_for_the_sake_of_which_node_another_one_stays() -> None:
    row = NodeSummary("node02", "x", "take-out", "error", changed=False, reason="node01 stays")
    result = step._plain(NodeResult(Outcome.ERROR, "node01 stays", data={TOGETHER: "node01"})) | {"phase": "take-out"}
    assert moves._result(row, Finished("c1", {"node02": result}, resumed=False), store())[TOGETHER] == "node01"


def beside(
    tmp_path: Path, serving: set[str], states: dict[str, NodeState]
) -> tuple[Ledger, Callable[[], tuple[str, ...]]]:
    """Return what asks for the partners of a wave of node01, and the ledger with these states."""
    paths = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(paths.database)
    for node, state in states.items():
        ledger.set_state(node, state, "", phase="handover", campaign="c1")
    made = Moves(
        "sim",
        paths,
        record_of("node01"),
        "x",
        cast("Any", SimpleNamespace(say=print)),
        lambda *_: None,
        lambda: serving,
    )
    return ledger, lambda: made.beside(site_of(), ["node01"])


READY = dict.fromkeys(("node02", "node03", "node04"), NodeState.READY)


def test_a_wave_may_borrow_nodes_in_service_only(tmp_path: Path) -> None:
    _, ask = beside(tmp_path, {"node03", "node04"}, READY)
    assert ask() == ("node03",), "node02 was drained by others, and one stays in service"


def test_a_partner_that_a_killed_run_left_is_named_first(tmp_path: Path) -> None:
    states = READY | {"node04": NodeState.CERTIFIED}
    ledger, ask = beside(tmp_path, {"node02", "node03"}, states)
    assert ask() == ("node02",)
    intent = ledger.begin("node04", DRAIN, "drained", {PARTNER_OF: ["node01"]})
    assert ask() == ("node04", "node02")
    ledger.done(intent.token, {})
    released = ledger.begin("node04", RELEASE, "released", {})
    ledger.done(released.token, {})
    assert ask() == ("node02",)
