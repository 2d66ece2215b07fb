"""`rackready trend`: its table, its documents, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rackready.evidence.store import EvidenceStore, new_id
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths
from tests.gates.test_trend import GATE, STEADY, measured

Command = Callable[..., tuple[int, str, str]]
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def paths(call: Command, tmp_path: Path) -> EnvPaths:
    _ = call
    return EnvPaths(tmp_path, "sim")


def keep(paths: EnvPaths, values: Sequence[float], **changes: object) -> None:
    """Record one value a night, the last one last night."""
    with Ledger.open(paths.database) as ledger:
        store = EvidenceStore.open(ledger, paths.raw)
        for number, value in enumerate(values):
            at = NOW - timedelta(days=len(values) - number)
            made = measured(0, value, **changes)
            store.append(made.model_copy(update={"id": new_id(), "started": at, "finished": at}))


def test_a_regression_is_shown_and_ends_with_one(call: Command, paths: EnvPaths) -> None:
    keep(paths, [*STEADY, 660, 661, 659])
    keep(paths, [*STEADY, 700, 701, 699], part="gpu1")
    code, out, _ = call("trend", "--env", "sim")
    assert code == 1
    (row,) = [line for line in out.splitlines() if "node01" in line]
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    assert cells == [
        "node01/gpu0",
        GATE,
        "gemm_fp16",
        "660 TFLOPS",
        "700",
        "-5.7 %",
        "14",
        "regression",
        "too few units: 2 of 16",
    ]
    assert out.splitlines()[-1] == "1 regression, 1 steady"


def test_steady_figures_are_shown_when_asked_for(call: Command, paths: EnvPaths) -> None:
    keep(paths, STEADY)
    assert call("trend")[0] == 0
    assert "node01/gpu0" not in call("trend")[1]
    assert "too few readings: 11 of 14" in call("trend", "--node", "node01")[1]
    assert call("trend", "--node", "node02")[1].splitlines() == ["no figure on record"]


def test_a_step_of_the_version_set_is_said(call: Command, paths: EnvPaths) -> None:
    keep(paths, STEADY)
    keep(paths, [665], driver="580.200.01")
    _, out, _ = call("trend")
    day = (NOW - timedelta(days=1)).strftime("%Y-%m-%d")
    assert f"new past of 1 figures: {day} driver 580.173.02 -> 580.200.01 (gemm_fp16 -5.0 %)" in out.splitlines()


def test_the_document_has_the_readings_of_one_gate(call: Command, paths: EnvPaths) -> None:
    keep(paths, [*STEADY, 660, 661, 659])
    _, out, _ = call("trend", "--output", "json", "--gate", GATE)
    (found,) = json.loads(out)["figures"]
    assert (found["outcome"], found["past"]["readings"], found["fleet"]["result"]) == ("regression", 14, "too few")
    assert [value for _, value in found["values"]] == [*STEADY, 660, 661, 659]
    assert (found["effect"], found["better"], found["nodes"]) == ("declared", "higher", ["node01"])
    (found,) = json.loads(call("trend", "--output", "json")[1])["figures"]
    assert "values" not in found


def test_csv_has_a_line_for_each_reading(call: Command, paths: EnvPaths) -> None:
    keep(paths, [700, 701.5])
    code, out, _ = call("trend", "--output", "csv")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(one["target"], one["value"], one["unit"]) for one in lines] == [
        ("node01/gpu0", "700.0", "TFLOPS"),
        ("node01/gpu0", "701.5", "TFLOPS"),
    ]


def test_older_evidence_is_not_read(call: Command, paths: EnvPaths) -> None:
    with Ledger.open(paths.database) as ledger:
        old = f"{int((NOW.timestamp() - 3 * 86400) * 1e9):020d}-aaaa"
        EvidenceStore.open(ledger, paths.raw).append(measured(0, 700).model_copy(update={"id": old}))
    assert "no figure" in call("trend", "--days", "2")[1]
    assert "no figure" not in call("trend", "--days", "4")[1]


def test_a_site_without_evidence_has_no_figure(call: Command, paths: EnvPaths) -> None:
    assert call("trend") == (0, "no figure on record\n", "")
    assert not Ledger.exists(paths.database)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--node", "node9", "--node node9 - Expected: one of node01, node02, node03, node04 Actual: no such node."),
        ("--gate", "x", "--gate x - Expected: one of bmc/"),
    ],
)
def test_unknown_names_are_refused(call: Command, option: str, value: str, text: str) -> None:
    code, _, err = call("trend", option, value)
    assert code == 2
    assert " ".join(err.split()).startswith(text)
