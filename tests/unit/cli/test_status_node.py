"""`rackready status --node`: the states that a node came to, with what was compared for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

Call = Callable[..., tuple[int, str, str]]


def test_the_states_of_a_node_are_shown_with_their_notes(call: Call, tmp_path: Path) -> None:
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        ledger.set_state("node01", NodeState.INVENTORIED, "8 GPUs as in profile dgx_h100", campaign="c1")
        ledger.set_state("node01", NodeState.READY)
    code, out, _ = call("status", "--node", "node01", "--no-scheduler")
    lines = [line.split(maxsplit=1)[1] for line in out.splitlines()]
    assert (code, lines) == (0, ["inventoried   8 GPUs as in profile dgx_h100", "ready"])
    found = json.loads(call("status", "--node", "node01", "--output", "json")[1])
    assert found["name"] == "node01"
    assert [(row["state"], row["reason"], row["campaign"]) for row in found["history"]] == [
        ("inventoried", "8 GPUs as in profile dgx_h100", "c1"),
        ("ready", "", ""),
    ]


def test_a_node_without_a_record_and_an_unknown_one(call: Call) -> None:
    assert call("status", "--node", "node01")[:2] == (0, "node01: nothing deployed yet\n")
    code, _, said = call("status", "--node", "node09")
    assert (code, said) == (
        2,
        (
            "--node - Expected: one of node01, node02, node03, node04 Actual: node09. Correct the name: "
            "`rackready status` lists the nodes.\n"
        ),
    )
