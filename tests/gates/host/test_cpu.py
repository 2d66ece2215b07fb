"""Processors with SMT turned off by the kernel (second threads offline), or with the frequency under BIOS control."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.host.cpu import GOVERNORS, SMT
from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node
from tests.gates.host.test_judgement import Change, judge
from tests.gates.support import tells

CPU = "node/host/sanity/cpu"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def kernel(control: str, online: str, offline: str | None, present: int = 224) -> Change:
    """Say what lscpu and the kernel do after `nosmt`: one thread of each core."""
    rows = {
        "CPU(s)": str(present),
        "On-line CPU(s) list": online,
        **({} if offline is None else {"Off-line CPU(s) list": offline}),
        "Model name": "Intel(R) Xeon(R) Platinum 8480C",
        "Thread(s) per core": "1",
        "Core(s) per socket": "56",
        "Socket(s)": "2",
        "NUMA node(s)": "2",
        "NUMA node0 CPU(s)": "0-55",
        "NUMA node1 CPU(s)": "56-110",
    }

    def change(found: dict[str, Any]) -> None:
        found["commands"]["lscpu"]["stdout"] = json.dumps(
            {"lscpu": [{"field": f"{name}:", "data": value} for name, value in rows.items()]}
        )
        found["files"][SMT] = {SMT: control}

    return change


@pytest.mark.parametrize(
    "change",
    [
        kernel("off", "0-111", "112-223"),  # nosmt
        kernel("forceoff", "0-111", None, present=112),  # nosmt=force: second threads are not counted at all
        kernel("notsupported", "0-111", None, present=112),  # switched off in the BIOS
    ],
)
def test_smt_that_is_to_be_off_leaves_the_second_threads_offline(node: Node, change: Change) -> None:
    verdict = judge(node, CPU, change, inputs={"smt": False})
    assert (verdict.outcome, tells(verdict)) == (Outcome.PASS, [])


@pytest.mark.parametrize(
    ("change", "smt", "counts"),
    [
        (
            kernel("off", "0-110", "111-223"),
            False,
            ("112 online", "111 online, offline: 111, 112, 113, 114, 115, 116, 117, 118 and 105 more"),
        ),
        (
            kernel("on", "0-111", "112-223"),
            True,
            ("224 online", "112 online, offline: 112, 113, 114, 115, 116, 117, 118, 119 and 104 more"),
        ),
        (kernel("forceoff", "0-110", "111", present=112), False, ("112 online", "111 online, offline: 111")),
        (kernel("notsupported", "0-110", "111", present=112), False, ("112 online", "111 online, offline: 111")),
    ],
)
def test_cores_that_are_offline_fail(node: Node, change: Change, smt: bool, counts: tuple[str, str]) -> None:  # noqa: FBT001 - the input
    verdict = judge(node, CPU, change, inputs={"smt": smt})
    assert (verdict.outcome, tells(verdict)) == (Outcome.FAIL, [("cpus-offline", "node01", *counts)])


def no_policies(found: dict[str, Any]) -> None:
    """Say what Linux does where the BIOS controls the frequency."""
    found["files"][GOVERNORS] = {}


def test_frequency_that_the_bios_keeps_is_declared(node: Node) -> None:
    verdict = judge(node, CPU, no_policies, inputs={"governor": None})
    assert (verdict.outcome, tells(verdict)) == (Outcome.PASS, [])
    assert "the BIOS controls the frequency, as the site declares" in (verdict.note or "")
    verdict = judge(node, CPU, no_policies)
    assert (verdict.outcome, tells(verdict)) == (
        Outcome.ERROR,
        [("frequency-governor-not-reported", "node01", "performance", "no cpufreq policy")],
    )
    assert verdict.findings[0].next_step.endswith("If the BIOS must keep control, declare the input `governor: null`.")


def test_a_governor_where_the_bios_is_to_keep_frequency_control_fails(node: Node) -> None:
    verdict = judge(node, CPU, inputs={"governor": None})
    expected = "no cpufreq policy: the BIOS controls the frequency"
    assert (verdict.outcome, tells(verdict)) == (
        Outcome.FAIL,
        [("frequency-governor-present", "node01", expected, "performance on 224 of 224 policies")],
    )
