"""Readings of a host made of plain tool outputs and files equal the document of the gate's own command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import Command, GateFacts, Run
from rackready.gates.engine.registry import gate
from rackready.gates.plain.document_makers import made, recognised, slots
from rackready.gates.records import offline
from rackready.gates.records.offline import Captured, evaluate
from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node, facts
from tests.gates.plain_texts import ibstat

LINKS, DISKS = "node/host/sanity/links", "node/host/sanity/disks"
Given = dict[str, list[Captured]]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def planned(gate_id: str) -> tuple[GateFacts, Run, Command]:
    known = facts("node01")
    run = gate(gate_id).plan(known, ["node01"])[0]
    return known, run, run.commands[0]


def printed(node: Node, command: Command, *, dump: bool = True) -> Given:
    """What the tools print, unfiltered, and what `grep -H` prints of the files."""
    wanted = json.loads(command.argv[-1])
    out: Given = {}
    for spec in wanted["commands"]:
        each = spec.get("each")
        values = (
            [""]
            if each is None
            else [item[each["field"]] for item in json.loads(out[each["of"]][0].text)[each["list"]]]
        )
        answers = [node.run([value if word == "{}" else word for word in spec["argv"]]) for value in values]
        out[spec["key"]] = [Captured(answer["stdout"], answer["exit_code"]) for answer in answers]
    if dump:
        out["files"] = [
            Captured(
                "".join(f"{path}:{text}\n" for pattern in wanted["files"] for path, text in node.files(pattern).items())
            )
        ]
    return out


def lacks(gate_id: str, given: Given) -> list[str]:
    known, run, command = planned(gate_id)
    documents, findings = made(known, run, {command.key: given})
    assert documents == {}
    return [str(finding) for finding in findings]


@pytest.mark.parametrize("gate_id", [LINKS, DISKS, "node/host/validation/optics", "node/host/sanity/memory-modules"])
def test_a_reading_is_the_same_as_the_nodes_own(node: Node, gate_id: str) -> None:
    known, run, command = planned(gate_id)
    documents, findings = made(known, run, {command.key: printed(node, command)})
    assert findings == []
    ours, theirs = json.loads(documents[command.key].text), node.document(json.loads(command.argv[-1]))
    for key, answer in theirs["commands"].items():  # the number of all lines is sent where some are left out alone
        assert ours["commands"][key] == {
            name: value for name, value in answer.items() if name != "lines" or "lines" in ours["commands"][key]
        }
    there = {pattern: texts for pattern, texts in theirs["files"].items() if texts}
    assert (ours["files"], ours["commands"].keys()) == (there, theirs["commands"].keys())
    assert evaluate(gate(gate_id), known, run, documents).outcome is Outcome.PASS


def test_links_are_told_by_ibstat_too(node: Node) -> None:
    known, run, command = planned(LINKS)
    given = printed(node, command)
    told = {"rate", "state", "phys_state"}
    given["files"] = [
        Captured(
            "".join(
                line
                for line in given["files"][0].text.splitlines(keepends=True)
                if line.split(":")[0].rpartition("/")[2] not in told
            )
        )
    ]
    names = [nic.rdma_device for nic in known.nodes["node01"].nics]
    for text, outcome in (
        (ibstat(*names), Outcome.PASS),
        (ibstat(*names[1:]) + ibstat(names[0], state="Down", physical="Polling"), Outcome.FAIL),
        (ibstat(*names[1:]) + ibstat(names[0], rate="200"), Outcome.FAIL),
    ):
        documents, findings = made(known, run, {command.key: {**given, "ibstat": [Captured(text)]}})
        assert findings == []
        assert evaluate(gate(LINKS), known, run, documents).outcome is outcome
    assert lacks(LINKS, {**given, "ibstat": [Captured(ibstat(*names[1:]))]}) == [
        (
            f"node01: /sys/class/infiniband/{names[0]}/ports/1/state, "
            f"/sys/class/infiniband/{names[0]}/ports/1/phys_state, "
            f"/sys/class/infiniband/{names[0]}/ports/1/rate: not in these outputs - "
            f"Expected: `grep -H '' /sys/class/infiniband/{names[0]}/ports/1/"
            f"{{state,phys_state,rate}}` Actual: not given. "
            "Give its output with --input files=FILE."
        )
    ]


def test_two_outputs_that_differ_are_an_error(node: Node) -> None:
    known, _, command = planned(LINKS)
    names = [nic.rdma_device for nic in known.nodes["node01"].nics]
    found = lacks(LINKS, {**printed(node, command), "ibstat": [Captured(ibstat(*names, state="Down"))]})
    said = f"/sys/class/infiniband/{names[0]}/ports/1/state is '4: ACTIVE' in one output and '1: DOWN' in another"
    assert (len(found), said in found[0]) == (1, True)


def test_each_tool_that_is_lacking_is_named(node: Node) -> None:
    _, _, command = planned(DISKS)
    given = printed(node, command, dump=False)
    give = "Actual: not given. Give its output with --input"
    assert lacks(DISKS, {"smart": given["smart"]}) == [
        f"node01: output of smartctl: not in these outputs - Expected: `smartctl --scan-open --json` {give} scan=FILE.",
        (
            "node01: output of lsblk: not in these outputs - Expected: `lsblk --json --nodeps --exclude 1,7,11 "
            f"--output PATH,TRAN,RM` {give} lsblk=FILE."
        ),
    ]
    first = json.loads(given["smart"][0].text)["device"]["name"]
    wanted = (
        f"node01: health of {first}: not in these outputs - Expected: `smartctl --all --json {first}` {give} "
        "smart=FILE."
    )
    assert lacks(DISKS, {**given, "smart": given["smart"][1:]}) == [wanted]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"critical_warning": 0, "percent_used": 1, "media_errors": 0}',
            (
                "nvme smart-log has no serial number, model, capacity and verdict of the drive; "
                "`smartctl --all --json DEVICE` does"
            ),
        ),
        (
            '{"smartctl": {"exit_status": 0}, "device": {"name": "/dev/nvme99"}}',
            "smartctl's output for /dev/nvme99, which is not on the list of `smartctl --scan-open`",
        ),
    ],
    ids=["nvme smart-log", "another drive"],
)
def test_a_drives_health_that_is_not_understood_is_an_error(node: Node, text: str, said: str) -> None:
    _, _, command = planned(DISKS)
    given = printed(node, command, dump=False)
    found = lacks(DISKS, {**given, "smart": [*given["smart"], Captured(text)]})
    assert [item.split(" Actual: ", 1)[1].split(". Give the tool's", 1)[0] for item in found] == [said]


def test_a_drive_that_fails_fails_by_the_exit_code_in_its_document(node: Node) -> None:
    known, run, command = planned(DISKS)
    given = printed(node, command, dump=False)
    bad: dict[str, Any] = json.loads(given["smart"][0].text)
    bad["smart_status"]["passed"], bad["smartctl"]["exit_status"] = False, 8
    documents, _ = made(known, run, {command.key: {**given, "smart": [Captured(json.dumps(bad)), *given["smart"][1:]]}})
    verdict = evaluate(gate(DISKS), known, run, documents)
    assert (verdict.outcome, verdict.findings[0].code) == (Outcome.FAIL, "drive-warns")


def test_a_kernel_log_is_given_whole_and_an_empty_one_says_nothing(node: Node) -> None:
    known, run, command = planned(LINKS)
    documents, _ = made(known, run, {command.key: {**printed(node, command), "dmesg": [Captured("")]}})
    verdict = evaluate(gate(LINKS), known, run, documents)
    assert (verdict.outcome, verdict.findings[0].code) == (Outcome.ERROR, "kernel-log-empty")


def test_patterns_of_files_are_not_told_whole_by_a_list(node: Node) -> None:
    _, _, command = planned("node/host/sanity/cpu")
    found = lacks("node/host/sanity/cpu", printed(node, command))
    step = "Run that command on the node, and give its output."
    assert found[0].endswith(
        "Expected: the gate's own command (`rackready gate show`) Actual: a list of files, which does not show "
        f"whether it is complete. {step}"
    )


def test_outputs_are_known_by_what_they_say(node: Node) -> None:
    for gate_id in (LINKS, DISKS):
        known, run, command = planned(gate_id)
        found = slots(known, run)
        for key, outputs in printed(node, command, dump=gate_id == LINKS).items():
            assert {recognised(found, output.text) for output in outputs} == {f"read:{key}"}
    assert recognised(slots(*planned(LINKS)[:2]), ibstat("mlx5_0")) == "read:ibstat"
    assert recognised(slots(*planned(DISKS)[:2]), '{"critical_warning": 0}') == "read:smart"


def test_where_a_profile_publishes_no_nics_the_gate_says_so() -> None:
    known = offline.facts("dgx_a100", 1)
    run = gate(LINKS).plan(known, ["node01"])[0]
    given = {"dmesg": [Captured("[    1.000000] a line\n")], "files": [Captured("/proc/uptime:4000.12 9000.00\n")]}
    documents, findings = made(known, run, {"read": given})
    assert findings == []
    verdict = evaluate(gate(LINKS), known, run, documents)
    assert (verdict.outcome, [finding.what for finding in verdict.findings]) == (
        Outcome.ERROR,
        ["location of parts unknown"],
    )
