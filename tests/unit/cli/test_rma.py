"""`rackready rma` as a user calls it: what is refused, the check, the documents of both ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.rma import back
from rackready.campaign.rma.parts import NodePart
from rackready.campaign.rma.peers import Peer
from rackready.ledger.part_history import RETIRED, PartEvent, append
from rackready.model.state import NodeState
from tests.unit.campaign.rma_node import Faulty
from tests.unit.cli.bmc_node import Node
from tests.unit.sim.bmc_service import served

Call = Callable[..., tuple[int, str, str]]
FAST = "evidence,history,bmc-log,node-parts,kernel-log,nvidia-bug-report"


@pytest.fixture
def faulty(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    del call
    with served(tmp_path) as service:
        yield Faulty(Node(service, tmp_path), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("rma", "node9", "--reason", "x"),
            (
                "node9 - Expected: one of node01, node02, node03, node04 Actual: no such node. Correct the name: "
                "`rackready status` lists the nodes."
            ),
        ),
        (("rma", "node01"), "--reason - Expected: a reason in words Actual: none. Give one: it is recorded."),
        (
            ("rma", "node01", "--reason", "x", "--without", "logs"),
            (
                "--without logs - Expected: one of evidence, history, ticket, bmc-parts, bmc-log, node-parts, "
                "kernel-log, nvidia-bug-report, nvdebug, field-diagnostic Actual: logs. Correct it."
            ),
        ),
        (
            ("rma", "node01", "--reason", "x", "--ticket", "/nonexistent/t.json"),
            "--ticket /nonexistent/t.json - Expected: a JSON file Actual: none. Correct the path.",
        ),
        (
            ("rma", "node02", "--reason", "x"),
            (
                "node02 - Expected: a deployment record Actual: none. "
                "Run `rackready deploy --env sim --limit node02` first."
            ),
        ),
        (
            ("rma", "node01", "--returned", "--reason", "x", "--check"),
            (
                "rma --returned - Expected: --reason alone: nothing is gathered Actual: --check. "
                "Omit --check or --returned."
            ),
        ),
        (
            ("rma", "node01", "--returned", "--reason", "x"),
            (
                "node01 - Expected: an open case Actual: none. "
                "If it was repaired in its place, run `rackready repair node01 --reason '...'`."
            ),
        ),
    ],
)
def test_it_is_refused_and_nothing_begins(call: Call, faulty: Faulty, words: tuple[str, ...], text: str) -> None:
    code, out, err = call(*words, "--output", "json")
    assert (code, json.loads(out)["error"]) == (2, text), err
    assert faulty.state()[0] == "quarantined"
    assert faulty.here.ran == []


def test_a_check_shows_every_collector_and_changes_nothing(call: Call, faulty: Faulty) -> None:
    code, out, _ = call("rma", "node01", "--check", "--without", "bmc-log")
    lines = out.splitlines()
    assert code == 0
    assert lines[3] == (
        "bmc-parts: would be gathered: parts, serials, slots and firmware as the BMC lists them "
        "(from the bmc, at most 30 min)"
    )
    assert [line.split(":")[1].strip() for line in lines[:-1]] == [
        "would be gathered", "would be gathered", "no --ticket", "would be gathered", "--without", "would be gathered",
        "would be gathered", "would be gathered", "not in the site file", "not in the site file",
    ]  # fmt: skip
    assert lines[-1] == "node01 would be drained first. Nothing was changed. Omit --check to gather"
    document = json.loads(call("rma", "node01", "--check", "--output", "json")[1])
    assert (document["done"], len(document["gather"])) == (False, 10)
    assert faulty.state()[0] == "quarantined"
    assert not (faulty.root / ".rackready/sim/rma").exists()


def test_there_and_back(call: Call, faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = call("rma", "node01", "--reason", "GPU 2 lost", "--without", FAST)
    assert code == 0, err
    (archive,) = (faulty.root / ".rackready/sim/rma").glob("*.tar.gz")
    case = archive.name.removesuffix(".tar.gz")
    assert "node01: not gathered: nvdebug: the site names none (rma.nvdebug)\n" in out
    assert out.endswith(
        f"node01: archive for the vendor: {archive}\n"
        "When it is back: rackready rma node01 --returned --env sim --reason '...'\n"
    )
    code, out, _ = call("rma", "node01", "--check", "--output", "json")
    assert [row["name"] for row in json.loads(out)["gather"] if row["gathered_before"]] == ["bmc-parts"]

    code, out, err = call("repair", "node01", "--reason", "x", "--output", "json")
    assert code == 2
    assert json.loads(out)["next_step"] == "Run `rackready rma node01 --returned --reason ...` once it is back."
    code, out, err = call("validate", "--limit", "node01", "--output", "json")
    assert (code, json.loads(out)["nodes"][0]["state"]) == (0, "repair")
    words = f"node01 is out for repair (rma: GPU 2 lost ({case})) and left out. When it is back: `rackready rma node01 "
    assert f"{words}--returned --reason '...'" in err

    monkeypatch.setattr(back, "peers", lambda *_: [Peer("node02", ["measured with node01"], {"pair/x/y/z"})])
    with faulty.ledger() as ledger:
        ledger.set_state("node02", NodeState.READY)
    state = faulty.node.service.state()
    gpu = state["gpus"][0]
    before, gpu["serial"] = gpu["serial"], "1659999999999"
    faulty.node.service.set(**state)
    code, out, err = call("rma", "node01", "--returned", "--reason", "GPU replaced")
    assert code == 0, err
    lines = out.splitlines()
    assert f"node01: gpu {gpu['bmc_name']}: {before} was replaced by 1659999999999" in lines
    assert lines[-2:] == [
        "node02: measured with node01: 1 gates are void, measured again when it next leaves production",
        "node01: reachable, epoch 2. `rackready deploy --env sim` continues with it.",
    ]


def test_a_retired_part_ends_with_exit_code_1(call: Call, faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("rma", "node01", "--reason", "x", "--without", FAST)[0] == 0
    with faulty.ledger() as ledger:
        append(ledger, [PartEvent(0.0, "c", "node01", RETIRED, "gpu", "1650", "gpu2")])
    monkeypatch.setattr(back, "_parts_now", lambda *_: ([NodePart("gpu", "gpu2", "1650")], []))
    code, out, _ = call("rma", "node01", "--returned", "--reason", "x", "--output", "json")
    document: dict[str, Any] = json.loads(out)
    assert (code, document["done"], document["state"]) == (1, False, "repair")
    assert document["retired"] == [
        (
            "node01: gpu 1650 - Expected: a part that did not return three times Actual: "
            "1970-01-01 00:00 UTC retired at node01 gpu2 (c). "
            "Have it replaced by another one, then run `rackready rma node01 --returned --reason ...`."
        )
    ]


def test_a_node_whose_bmc_does_not_answer_is_not_back(call: Call, faulty: Faulty) -> None:
    assert call("rma", "node01", "--reason", "x", "--without", FAST)[0] == 0
    faulty.node.service.faulty(errors=500)
    faulty.node.service.server.shutdown()
    faulty.node.service.server.server_close()
    code, out, _ = call("rma", "node01", "--returned", "--reason", "x", "--output", "json")
    found = json.loads(out)
    assert (code, found["what"], found["expected"]) == (2, "parts after its return", "a list from its BMC")
    assert faulty.state()[0] == "repair"
