"""The verdict on what a node answered: only a plainly equal answer proves anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plugins.filter import rackready_gpu
from rackready.drivers.proof.judge import ProofResult, judged
from rackready.drivers.proof.kinds import KINDS
from rackready.drivers.proof.recorded import Recorded, RecordedStep
from rackready.drivers.proof.rules import _is_tuned
from rackready.ondevice import replay

NOW = 1_800_000_000.0
PROGRAM = {"rc": 0, "stdout": "580.1", "stderr": ""}
DRIVER = {"changed": False, "loaded": "580.1", "differs": [], "drift": [], "notes": []}


def document(*answers: dict[str, Any], **more: Any) -> str:
    steps = [{"at_s": 1.0, "status": 0} | answer for answer in answers]
    whole = {"format": replay.FORMAT, "steps": steps, "seconds": 10.0, "digest": replay.digest(steps), "complete": True}
    return json.dumps(whole | more)


def step(action: str, expected: object, role: str = "role", task: str = "task") -> RecordedStep:
    return RecordedStep(role, task, action, {}, expected)


COMMAND = Recorded((step("ansible.builtin.command", PROGRAM),))
MODULE = Recorded((step("rackready_driver", DRIVER),))


def test_equal_answers_prove_it() -> None:
    assert judged(COMMAND, document({"changed": True, "result": PROGRAM}), NOW) == ProofResult()
    assert judged(MODULE, document({"changed": False, "result": DRIVER}), NOW).same


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the node's answer is no document of this version"),
        ("[]", "the node's answer is no document of this version"),
        (document({"result": PROGRAM})[:-40], "the node's answer is no document of this version"),
        (
            document({"result": PROGRAM}, format="rackready/replay/v2"),
            "the node's answer is no document of this version",
        ),
        (document({"result": PROGRAM}, complete=False), "the node's answer is no document of this version"),
        (document({"result": PROGRAM}, digest="0" * 64), "the node's answer is damaged"),
        (document({"result": PROGRAM}, steps=[]), "the node's answer is damaged"),
        (document(), "0 answers, expected 1"),
        (document({"result": PROGRAM}, {"result": PROGRAM}), "2 answers, expected 1"),
    ],
)
def test_an_answer_that_is_not_whole_proves_nothing(text: str, why: str) -> None:
    assert judged(COMMAND, text, NOW) == ProofResult(failure=why)


@pytest.mark.parametrize("more", [{"seconds": None}, {"seconds": "x"}, {"seconds": []}], ids=["none", "text", "list"])
def test_an_answer_of_another_shape_is_no_error_of_the_other_nodes(more: dict[str, Any]) -> None:
    assert judged(COMMAND, document({"result": PROGRAM}, **more), NOW).failure == "the node's answer cannot be read"


@pytest.mark.parametrize("steps", [["x"], [None], [7]])
def test_a_step_of_another_shape_is_no_error_of_the_other_nodes(steps: list[Any]) -> None:
    text = document(steps=steps, digest=replay.digest(steps))
    assert judged(COMMAND, text, NOW).failure == "the node's answer cannot be read"


def test_a_record_without_steps_proves_nothing() -> None:
    assert judged(Recorded(()), document(), NOW).failure == "0 answers, expected 0"


ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"changed": True, "result": DRIVER | {"changed": True}}, "it would change something"),
    (
        {
            "changed": True,
            "result": DRIVER
            | {"drift": [{"kind": "driver", "name": "loaded driver", "expected": "580.1", "actual": "570.9"}]},
        },
        "loaded driver 570.9, wanted 580.1",
    ),
    (
        {"changed": False, "failed": True, "failure": "Expected: a Actual: b.", "result": DRIVER},
        "Expected: a Actual: b.",
    ),
    ({"changed": False, "status": 1, "result": DRIVER}, "ended with status 1"),
    ({"changed": False, "status": -9, "result": DRIVER}, "ended with status -9"),
    ({"result": DRIVER}, "it would change something"),
    ({"failure": "it ran too long"}, "it ran too long"),
    ({"failure": "no JSON: Traceback", "status": 1}, "no JSON: Traceback"),
    ({}, "no answer"),
    ({"changed": False, "result": []}, "no answer"),
    ({"changed": False, "result": DRIVER | {"loaded": "570.9"}}, "another answer (loaded)"),
    ({"changed": False, "result": DRIVER | {"more": 1}}, "another answer (more)"),
    ({"changed": False, "result": {key: DRIVER[key] for key in DRIVER if key != "notes"}}, "another answer (notes)"),
    ({"changed": False, "result": DRIVER | {"notes": ["an earlier run was interrupted"]}}, "another answer (notes)"),
]


@pytest.mark.parametrize("name", [name for name in KINDS if name.startswith("rackready_")])
@pytest.mark.parametrize(("answer", "why"), ANSWERS)
def test_any_other_answer_of_any_module_is_a_difference(name: str, answer: dict[str, Any], why: str) -> None:
    record = Recorded((step(name, DRIVER),))
    assert judged(record, document({"changed": False, "result": DRIVER}), NOW).same
    assert judged(record, document(answer), NOW) == ProofResult((f"role : task: {why}",))


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not name.startswith("rackready_")])
def test_any_other_answer_of_ansibles_modules_is_a_difference(name: str) -> None:
    keys = KINDS[name].keep
    assert isinstance(keys, dict)
    expected = dict.fromkeys(keys, "x") | ({"changed": False} if "changed" in keys else {})
    record = Recorded((step(name, expected),))
    assert judged(record, document({"changed": False, "result": expected}), NOW).same
    for key in keys:
        assert judged(record, document({"changed": False, "result": expected | {key: "y"}}), NOW).reason, key
        lacking = {other: value for other, value in expected.items() if other != key}
        assert judged(record, document({"changed": False, "result": lacking}), NOW).reason, key


def test_the_reason_names_the_first_difference_and_the_number_of_others() -> None:
    assert ProofResult(("a : b: c", "d", "e")).reason == "a : b: c and 2 more"
    assert ProofResult(("a : b: c",)).reason == "a : b: c"


# rules: role and task, what they recorded, bounds; each answer with the reason why it is not good enough

DF = "Avail Mounted on\n{} /\n{} /var"
CLOCK = "base : preflight | Read the clock"
ROOM = "base : preflight | Read the free disk space"
BOOT = "base : preflight | Read the kernel's packages, holds and the room in /boot"
FABRIC = "nvidia_fabricmanager : service | Wait until the fabric of every GPU is initialised"
TUNED = "gpu_tuning : verify | Read power limit and clock of every GPU"
KERNEL = {"changed": False, "release": "6.1", "packages": {}, "boot_free_mb": 500, "boot_needed_mb": 300}
SMI = "GPU 0\n    Fabric\n        State                             : {}\n        Status : Success\n"
BOUNDS = {
    "base : preflight | Check the disk": {"min_free_mib": 512.0},
    "base : preflight | Check the clock": {"max_clock_skew_s": 120.0},
    "gpu_tuning : preflight | Check the role's inputs": {
        "power_limit_w": 700.0,
        "sm_clock_min_mhz": 1900.0,
        "gpus": 2.0,
    },
}


def said(text: str) -> dict[str, Any]:
    return {"rc": 0, "stderr": "", "stdout": text}


RULED: list[tuple[str, Any, Any, str]] = [
    (ROOM, said(DF.format(9000, 8000)), said(DF.format(600, 512)), ""),
    (ROOM, said(DF.format(9000, 8000)), said(DF.format(600, 511)), "511 MiB free, at least 512 wanted"),
    (ROOM, said(DF.format(9000, 8000)), said("Avail Mounted on\n600 /"), "the file systems are others"),
    (ROOM, said(DF.format(9000, 8000)), said(""), "the file systems are others"),
    (ROOM, said(DF.format(9000, 8000)), said(DF.format("x", 9)), "an answer that cannot be read"),
    # Asked 1 s after the start of a proof that took 10 s.
    (CLOCK, said("7"), said(f"{NOW - 9:.0f}"), ""),
    (CLOCK, said("7"), said(f"{NOW - 9 + 120:.0f}"), ""),
    (CLOCK, said("7"), said(f"{NOW - 9 + 121:.0f}"), "the clocks are 121 s apart, at most 120 wanted"),
    (CLOCK, said("7"), said(f"{NOW - 9 - 121:.0f}"), "the clocks are 121 s apart, at most 120 wanted"),
    (CLOCK, said("7"), said(""), "an answer that cannot be read"),
    (BOOT, KERNEL, KERNEL | {"boot_free_mb": 300}, ""),
    (BOOT, KERNEL, KERNEL | {"boot_free_mb": 299}, "299 MB free in /boot, 300 needed"),
    (BOOT, KERNEL, KERNEL | {"release": "6.2"}, "another answer (release)"),
    (BOOT, KERNEL, {"changed": False, "release": "6.1", "packages": {}}, "an answer that cannot be read"),
    (FABRIC, said("now 1\n" + SMI.format("Completed")), said("now 2\n" + SMI.format("Completed")), ""),
    (
        FABRIC,
        said(SMI.format("Completed")),
        said(SMI.format("In Progress")),
        "fabric states In Progress/Success, were Completed/Success",
    ),
    (FABRIC, said(SMI.format("Completed")), said(""), "fabric states none, were Completed/Success"),
    (TUNED, said("0, 700.00, 1980\n1, 700.00, 1980"), said("0, 700.00, 1950\n1, 700.00, 1900"), ""),
    (
        TUNED,
        said("0, 700.00, 1980\n1, 700.00, 1980"),
        said("0, 650.00, 1980\n1, 700.00, 1980"),
        "1 of 2 GPUs with the wanted limits: 0,650.00,1980; 1,700.00,1980",
    ),
    (TUNED, said("0, 700.00, 1980\n1, 700.00, 1980"), said("0, 700.00, 1980"), "1 of 2 GPUs with the wanted limits"),
    (TUNED, said("0, 700.00, 1980\n1, 700.00, 1980"), said(""), "0 of 2 GPUs with the wanted limits"),
]


@pytest.mark.parametrize(("where", "recorded", "found", "why"), RULED)
def test_a_rule_judges_by_the_bounds_of_the_role(where: str, recorded: object, found: object, why: str) -> None:
    role, _, task = where.partition(" : ")
    action = "rackready_kernel" if where == BOOT else "ansible.builtin.command"
    record = Recorded((step(action, recorded, role, task),), BOUNDS)
    got = judged(record, document({"changed": False, "result": found}), NOW).reason
    assert got.startswith(f"{where}: {why}" if why else "")
    assert bool(got) is bool(why)


@pytest.mark.parametrize("where", [ROOM, CLOCK, TUNED])
def test_a_rule_without_its_bounds_proves_nothing(where: str) -> None:
    role, _, task = where.partition(" : ")
    (found,) = [good for rule, good, _, why in RULED if rule == where and not why][:1]
    record = Recorded((step("ansible.builtin.command", found, role, task),), BOUNDS)
    for bounds in ({}, {name: {} for name in BOUNDS}):
        got = judged(replace(record, bounds=bounds), document({"changed": True, "result": found}), NOW)
        assert ": no bound " in got.reason


def test_the_rule_of_tuned_gpus_is_the_filter_of_the_role() -> None:
    bounds = BOUNDS["gpu_tuning : preflight | Check the role's inputs"]
    tuned: Callable[[list[str], float, float], list[str]] = rackready_gpu.tuned
    for row in ("0,700.00,1980", "0,700.99,1900", "0,701.00,1980", "0,699.00,1980", "0,700,1899", "0,x,1", "", "1,2"):
        assert bool(tuned([row], 700.0, 1900.0)) is _is_tuned(row.split(","), bounds), row
