"""What a step leaves in the ledger, row by row, for nodes of every kind.

``step_records.json`` was first made by code that wrote each row in a transaction of its own. ``GOLDENS=rewrite``
rewrites it.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.campaign import phase_table, step
from rackready.campaign.request import CampaignRequest
from rackready.ledger import schema
from rackready.ledger.store import CHANGE, Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, NOTE, REACHED, UNTOUCHED, NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.postgres import PostgresServer

GOLDEN = Path(__file__).with_name("step_records.json")
RESULTS = {
    "same": NodeResult(Outcome.PASS),
    "changed": NodeResult(Outcome.PASS, changed=True, data={"changes": ["a : x", "b : y"]}),
    "many": NodeResult(Outcome.PASS, changed=True, data={"changes": list("abcdef")}),
    "noted": NodeResult(Outcome.PASS, data={NOTE: "left as it was\0"}),
    "reached": NodeResult(Outcome.PASS, data={REACHED: {"reachable": "by name", "inventoried": "8 GPUs"}}),
    "skipped": NodeResult(Outcome.SKIP, "not wanted here"),
    "failed": NodeResult(Outcome.FAIL, "gpu2: broken"),
    "partly": NodeResult(Outcome.ERROR, "no answer", data={REACHED: {"reachable": "by name"}}),
    "drained": NodeResult(Outcome.ERROR, "drained already", data={DRAINED: True}, touched=False),
    "untouched": NodeResult(Outcome.ERROR, "left alone", data={UNTOUCHED: True}, touched=False),
}
KINDS = list(RESULTS)
NODES = [f"{name}{number}" for number in range(3) for name in (*KINDS, "lost")]
"""Numbers: 0 is new, 1 was in production with a reason, 2 was repaired and its last change cut off."""


def before(ledger: Ledger) -> None:
    for name in (*KINDS, "lost"):
        ledger.set_state(f"{name}1", NodeState.READY, "left alone by an upgrade", phase="handover", campaign="c0")
        ledger.set_state(f"{name}2", NodeState.QUARANTINED, "gpu2: broken", phase="validate", campaign="c0")
        ledger.change_begins(f"{name}2", "of an epoch that is over")
        ledger.raise_epoch(f"{name}2", "repaired")
        ledger.set_state(f"{name}2", NodeState.REACHABLE, phase="provision", campaign="c0")
        ledger.change_begins(f"{name}2", "provision")


def rows(ledger: Ledger) -> dict[str, list[str]]:
    """Return the tables without times, and with each operation's node in the place of its token."""
    out = {}
    with ledger.read() as connection:
        for table in (schema.nodes, schema.transitions, schema.events, schema.operations):
            keep = [column for column in table.c if column.name not in {"since", "at", "begun", "ended", "id", "token"}]
            order = list(table.primary_key)
            found = connection.execute(sa.select(*keep).order_by(*order)).mappings()
            out[table.name] = [" | ".join(f"{name}={value}" for name, value in row.items()) for row in found]
    return out


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_row_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kind: str, *, check: bool
) -> None:
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        server.database(tmp_path, "x")
    drained: list[list[str]] = []

    def run(_ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        return {node: RESULTS[node[:-1]] for node in nodes if node[:-1] in RESULTS}

    def drain(_ctx: PhaseContext, nodes: list[str], reasons: dict[str, str]) -> dict[str, NodeResult]:
        drained.append([f"{node} {reasons[node]}" for node in nodes])
        return {
            node: NodeResult(Outcome.ERROR if node == "failed1" else Outcome.PASS, "no scheduler") for node in nodes
        }

    for name, phase in phase_table.PHASES.items():
        monkeypatch.setitem(phase_table.PHASES, name, replace(phase, run=run))
    monkeypatch.setattr(step, "drain_nodes", drain)
    asked = CampaignRequest("c1", "x", str(tmp_path), "deploy", (), tuple(NODES), 64, 64, 100, "d", check=check)
    results = {}
    with Ledger.open(EnvPaths(tmp_path, "x").database) as ledger:
        before(ledger)
        for phase in ("provision", "install", "validate", "handover"):
            results[phase] = step.run_phase(asked, phase, NODES)
        seen = json.loads(json.dumps({"rows": rows(ledger), "results": results, "drained": drained}))
        assert all(entry.ended for entry in ledger.entries() if entry.status != "intent")
        assert {entry.status for entry in ledger.entries("same0") if entry.operation == CHANGE} <= {"failed"}
    key = "check" if check else "real"
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    if os.environ.get("GOLDENS") == "rewrite" and kind == "sqlite":
        GOLDEN.write_text(json.dumps(golden | {key: seen}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    else:
        assert seen == golden[key]
