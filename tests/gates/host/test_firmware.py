"""The firmware gate on parts that do not report what they are, or are missing in the output: never left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node
from tests.gates.host.test_firmware_baseline import FIRMWARE, psids
from tests.gates.host.test_judgement import Change, Document, judge
from tests.gates.support import tells


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


AGAIN = "Run the gate again; if that does not help, read its raw output (`rackready report --raw HASH`)."


@pytest.mark.parametrize("board", ["\\x1b[01;31mMT_0000000838", "MT_00\\ufffd0000838", "MT_0000  000838", "n/a"])
def test_a_psid_that_is_none_is_no_kind_of_its_own(node: Node, board: str) -> None:
    board = board.encode().decode("unicode_escape")
    verdict = judge(node, FIRMWARE, psids(board))
    assert tells(verdict) == [
        ("nic-firmware-not-reported", "node01 mlx5_0", "version and PSID", f"'28.43.2566' and {board!r}")
    ]
    assert verdict.outcome is Outcome.ERROR


def test_a_nic_that_no_other_is_like_is_not_left_out(node: Node) -> None:
    verdict = judge(node, FIRMWARE, psids("HPE0000000"))
    assert tells(verdict) == [("firmware-nic-alone", "node01 mlx5_0", "NIC MT_0000000838", "mlx5_0 is NIC HPE0000000")]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])
    assert judge(node, FIRMWARE, psids(*["HPE0000000"] * 4)).outcome is Outcome.PASS


def vbios(change: Callable[[list[str]], object]) -> Change:
    """Change the lines in which nvidia-smi names GPUs and their VBIOS."""

    def of_node(found: Document) -> None:
        answer = found["commands"]["nvidia-smi"]
        lines = answer["stdout"].splitlines()
        change(lines)
        answer["stdout"] = "\n".join(lines) + "\n"

    return of_node


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.pop(3),
        lambda lines: lines.append(lines[3]),
        lambda lines: lines.__setitem__(3, lines[3].replace("80GB", "80G")),
        lambda lines: lines.__setitem__(3, lines[3].replace("3,", "2,", 1)),
    ],
    ids=["one less", "one twice", "one of another name", "another index"],
)
def test_vbios_is_told_of_every_gpu_of_one_model(node: Node, change: Callable[[list[str]], object]) -> None:
    finding = judge(node, FIRMWARE, vbios(change)).findings[0]
    assert (finding.where, finding.what, finding.expected) == (
        "node01",
        "VBIOS not reported for every GPU",
        "one line for each of 8 GPUs of one model",
    )
    assert finding.next_step == "Run gate node/gpu/sanity/inventory: it names the missing or different GPU."


@pytest.mark.parametrize(
    ("model", "words"), [(-1, "model_name is -1, which is no word"), (True, "model_name is True, which is no word")]
)
def test_a_drive_whose_model_is_no_word_cannot_be_read(node: Node, model: object, words: str) -> None:
    def change(found: Document) -> None:
        answer = found["commands"]["smart /dev/nvme4"]
        answer["stdout"] = json.dumps({**json.loads(answer["stdout"]), "model_name": model})

    assert tells(judge(node, FIRMWARE, change)) == [
        ("drive-health-unreadable", "node01 /dev/nvme4", "smartctl's document", f"{words} (exit 0)", "name=/dev/nvme4")
    ]


@pytest.mark.parametrize("model", ["", "N/A", "unknown", "SAMSUNG\u200b MZ", "SAMSUNG  MZ"])
def test_a_drive_that_does_not_tell_its_model_is_no_kind_of_its_own(node: Node, model: str) -> None:
    def change(found: Document) -> None:
        answer = found["commands"]["smart /dev/nvme4"]
        answer["stdout"] = json.dumps({**json.loads(answer["stdout"]), "model_name": model})

    verdict = judge(node, FIRMWARE, change)
    assert [item[:3] for item in tells(verdict)] == [
        ("drive-firmware-not-reported", "node01 /dev/nvme4", "model and version")
    ]
    assert verdict.outcome is Outcome.ERROR


def test_an_answer_of_a_drive_that_the_scan_does_not_list_is_a_contradiction(node: Node) -> None:
    def change(found: Document) -> None:
        answer = found["commands"]["scan"]
        listed = json.loads(answer["stdout"])
        answer["stdout"] = json.dumps(
            {**listed, "devices": [item for item in listed["devices"] if item["name"] != "/dev/nvme4"]}
        )

    for gate_id in (FIRMWARE, "node/host/sanity/disks"):
        texts = [str(finding) for finding in judge(node, gate_id, change).findings]
        assert (
            "node01 /dev/nvme4: smartctl's list contradicts its answers - Expected: a drive of its list "
            f"Actual: an answer, but no place on the list. {AGAIN}"
        ) in texts
