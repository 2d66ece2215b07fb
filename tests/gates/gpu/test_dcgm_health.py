"""DCGM's health watches: what they say, for which GPUs, and only after their minute."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import Told, rack, tells

GATE = "node/gpu/validation/dcgm-health"
HEALTH = {"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}
SET = "Health monitor systems set successfully.\n"


def judge(set_: str, seen: str, check: dict[str, Any], platform: str = "dgx_h100", **changed: str) -> Verdict:
    known, found = facts(platform, 1), gate(GATE)
    run = found.plan(known, ["node01"])[0]
    healthy = {
        "set_gpus": set_,
        "set_switches": SET,
        "seen": seen,
        "check_gpus": json.dumps(check),
        "check_switches": json.dumps(HEALTH),
    } | changed
    said = {
        command.key: Output(command.key, "node01", "x", 0, healthy[command.key.replace("-", "_")], seconds=1.0)
        for command in run.commands
    }
    return found.evaluate(known, run, said)


def seen_by_dcgm(gpus: int, switches: int = 4, active: str = " (Active)", model: str = "NVIDIA H100 80GB HBM3") -> str:
    rows = "".join(
        f"| {gpu}      | Name: {model:<63}|\n|        | PCI Bus ID: 00000000:1{gpu}:00.0 |\n" for gpu in range(gpus)
    )
    return f"{gpus} GPUs found{active}.\n+--------+\n| GPU ID |\n{rows}{switches} NvSwitches found.\n"


def incident(word: str) -> dict[str, Any]:
    said = {"value": word, "overflow": ["Detected 1 volatile double-bit ECC error(s) in GPU 3."]}
    return {
        "body": {
            "Overall Health": {"value": word},
            "GPU": {"children": {"3": {"value": word, "children": {"Errors": {"children": {"Memory system": said}}}}}},
        },
        "header": [],
    }


@pytest.mark.parametrize(
    ("set_", "check", "finding", "outcome"),
    [
        (SET, HEALTH, None, Outcome.PASS),
        (
            SET,
            incident("Failure"),
            (
                "dcgm-health-incident",
                "node01 gpu3",
                "Healthy",
                "Failure: Detected 1 volatile double-bit ECC error(s) in GPU 3.",
                "system=Memory system",
            ),
            Outcome.FAIL,
        ),
        (
            SET,
            {"body": {"Overall Health": {"value": "Warning"}}},
            ("dcgm-health-bad-unnamed", "node01", "Healthy", "Warning, and no entity is named"),
            Outcome.FAIL,
        ),
        (
            SET,
            {"body": {"Overall Health": {"value": "Splendid"}}},
            (
                "dcgm-health-unreadable",
                "node01",
                "JSON of dcgmi health -c",
                "health 'Splendid' is unknown (exit code 0)",
            ),
            Outcome.ERROR,
        ),
        (
            "Error: Unable to set health watches.\n",
            HEALTH,
            (
                "dcgm-watches-not-set",
                "node01",
                "Health monitor systems set successfully",
                "Error: Unable to set health watches. (exit code 0)",
                "name=gpus",
            ),
            Outcome.ERROR,
        ),
    ],
)
def test_dcgm_health(set_: str, check: dict[str, Any], finding: Told | None, outcome: Outcome) -> None:
    verdict = judge(set_, seen_by_dcgm(8), check)
    assert tells(verdict) == ([finding] if finding else [])
    assert verdict.outcome is outcome


UNNAMED = ("dcgm-health-no-incident", "node01 gpu3", "Healthy", "Failure, and no incident is named")
ECC = ("dcgm-health-incident", "node01 gpu3", "Healthy", "Failure: a double-bit error", "system=Memory system")


def overall(actual: str) -> Told:
    expected = "an overall health as bad as that of the worst entity: Failure"
    return "dcgm-health-overall-contradicts", "node01", expected, actual


@pytest.mark.parametrize(
    ("overall_", "word", "system", "findings"),
    [
        ("Healthy", "Failure", None, [UNNAMED, overall("Healthy")]),
        ("Healthy", "Failure", "Healthy", [UNNAMED, overall("Healthy")]),
        ("Failure", "Failure", None, [UNNAMED]),
        (
            "Failure",
            "Healthy",
            "Failure",
            [
                ECC,
                (
                    "dcgm-health-entity-contradicts",
                    "node01 gpu3",
                    "a health as bad as its worst incident: Failure",
                    "Healthy",
                ),
            ],
        ),
        ("Warning", "Failure", "Failure", [ECC, overall("Warning")]),
        ("Failure", "Failure", "Failure", [ECC]),
        (
            "Warning",
            "Warning",
            "Failure",
            [
                ECC,
                (
                    "dcgm-health-entity-contradicts",
                    "node01 gpu3",
                    "a health as bad as its worst incident: Failure",
                    "Warning",
                ),
                overall("Warning"),
            ],
        ),
    ],
)
def test_an_entitys_own_word_counts(overall_: str, word: str, system: str | None, findings: list[Told]) -> None:
    """Dcgmi makes it the worst of its incidents, and the overall word the worst of all (HandleOneEntity in dcgmi/Health.cpp)."""  # noqa: E501
    errors = {"Memory system": {"value": system, "overflow": ["a double-bit error"]}} if system else {}
    gpu = {"children": {"3": {"value": word, "children": {"Errors": {"children": errors}}}}}
    verdict = judge(SET, seen_by_dcgm(8), {"body": {"Overall Health": {"value": overall_}, "GPU": gpu}, "header": []})
    assert (tells(verdict), verdict.outcome) == (findings, Outcome.FAIL)
    assert verdict.measured == [f"node01/gpu{index}" for index in range(8) if index != 3]


@pytest.mark.parametrize("errors", [{}, {"Memory system": {"value": "Healthy"}}])
def test_dcgm_lists_no_entity_that_is_healthy(errors: dict[str, Any]) -> None:
    gpu = {"children": {"3": {"value": "Healthy", "children": {"Errors": {"children": errors}}}}}
    verdict = judge(SET, seen_by_dcgm(8), {"body": {"Overall Health": {"value": "Healthy"}, "GPU": gpu}, "header": []})
    finding = ("dcgm-health-healthy-listed", "node01 gpu3", "only entities with incidents", "an entity that is Healthy")
    assert (tells(verdict), verdict.outcome) == ([finding], Outcome.ERROR)


@pytest.mark.parametrize(
    ("seen", "finding", "outcome"),
    [
        (
            seen_by_dcgm(7),
            ("dcgm-watches-too-few-gpus", "node01", "8", "7"),
            Outcome.FAIL,
        ),
        (seen_by_dcgm(8, 0), ("dcgm-watches-nvswitches", "node01", "4", "0"), Outcome.FAIL),
        (seen_by_dcgm(8, 3), ("dcgm-watches-nvswitches", "node01", "4", "3"), Outcome.FAIL),
        (
            "",
            ("dcgm-discovery-unreadable", "node01", "the GPUs and NVSwitches that were found", "nothing (exit code 0)"),
            Outcome.ERROR,
        ),
    ],
    ids=["one is missing", "no switches", "a switch is missing", "nothing said"],
)
def test_healthy_counts_for_the_gpus_that_dcgm_sees(seen: str, finding: Told, outcome: Outcome) -> None:
    """The report of `dcgmi health -c` names only GPUs that are ill: one that DCGM does not see at all is none of them."""  # noqa: E501
    verdict = judge(SET, seen, HEALTH)
    assert tells(verdict) == [finding]
    assert (verdict.outcome, verdict.measured) == (outcome, [])


@pytest.mark.parametrize("gpus", [1, 8])
def test_watches_of_another_model_are_none_of_this_platforms_gpus(gpus: int) -> None:
    verdict = judge(SET, seen_by_dcgm(gpus, model="Tesla T4"), HEALTH)
    wanted = (
        "gpus-of-another-model",
        "node01",
        "NVIDIA H100 80GB HBM3",
        f"Tesla T4 ({gpus} on node01)",
        "what=DCGM watches",
    )
    assert (tells(verdict), verdict.outcome, verdict.measured) == ([wanted], Outcome.ERROR, [])


def test_more_gpus_than_the_platform_has_are_not_called_missing() -> None:
    verdict = judge(SET, seen_by_dcgm(9), HEALTH)
    assert (tells(verdict), verdict.outcome) == (
        [("dcgm-watches-too-many-gpus", "node01", "8", "9")],
        Outcome.FAIL,
    )


@pytest.mark.parametrize("active", ["", " (Active)"], ids=["until DCGM 4.4", "from DCGM 4.5 on"])
def test_both_forms_of_the_discovery_are_read(active: str) -> None:
    verdict = judge(SET, seen_by_dcgm(8, active=active), HEALTH)
    assert (tells(verdict), verdict.measured) == ([], [f"node01/gpu{gpu}" for gpu in range(8)])


def test_switches_are_a_group_of_their_own() -> None:
    """The default group of `dcgmi health` is all GPUs, and all entities (a) is none that the host engine has."""
    commands = {command.key: command.argv for command in gate(GATE).plan(rack(1), ["node01"])[0].commands}
    assert commands["set-gpus"] == ("dcgmi", "health", "-g", "g", "-s", "a")
    assert commands["set-switches"] == ("dcgmi", "health", "-g", "s", "-s", "a")
    assert [commands[f"check-{name}"][-1].splitlines()[-1] for name in ("gpus", "switches")] == [
        f"exec dcgmi health -g {group} -c -j" for group in "gs"
    ]
    said = {"value": "Failure", "overflow": ["Detected fatal errors on NvSwitch 2."]}
    switch = {"children": {"2": {"value": "Failure", "children": {"Errors": {"children": {"NvSwitch F": said}}}}}}
    verdict = judge(
        SET,
        seen_by_dcgm(8),
        HEALTH,
        check_switches=json.dumps({"body": {"Overall Health": {"value": "Failure"}, "Switch": switch}}),
    )
    assert tells(verdict) == [
        (
            "dcgm-health-incident",
            "node01 Switch 2",
            "Healthy",
            "Failure: Detected fatal errors on NvSwitch 2.",
            "system=NvSwitch F",
        )
    ]
    refused = judge(
        SET,
        seen_by_dcgm(8),
        HEALTH,
        set_switches="Error: Unable to set health watches. Return: The Group is not found\n",
    )
    assert tells(refused) == [
        (
            "dcgm-watches-not-set",
            "node01",
            "Health monitor systems set successfully",
            "Error: Unable to set health watches. Return: The Group is not found (exit code 0)",
            "name=switches",
        )
    ]


@pytest.mark.parametrize(
    ("platform", "model", "note"),
    [
        ("dgx_b200", "NVIDIA B200", "NVSwitches are not watched: this server's host engine does not see them"),
        ("sys_521ge_l40s", "NVIDIA L40S", None),
    ],
)
def test_a_server_whose_host_engine_sees_no_switches_is_not_held_to_any(
    platform: str, model: str, note: str | None
) -> None:
    verdict = judge(SET, seen_by_dcgm(8, 0, model=model), HEALTH, platform)
    assert (tells(verdict), verdict.note, len(verdict.measured)) == ([], note, 8)


def test_the_processors_of_an_arm_server_are_no_gpus() -> None:
    """DCGM 4 lists Grace behind the NVSwitches, in rows like a GPU's (dcgmi/Query.cpp, HelperDisplayDiscoveredCpus)."""
    row = (
        "| {0}      | Name: Grace                                                          |\n|  "
        "      | Serial number : 0x0000000{0}                                           |\n"
    )
    processors = (
        f"0 ConnectX found.\n+----------+\n2 CPUs found.\n+--------+\n| CPU ID |\n{row.format(0)}{row.format(1)}"
    )
    verdict = judge(SET, seen_by_dcgm(4, 0, model="NVIDIA GB200") + processors, HEALTH, "gb200_nvl72")
    assert (tells(verdict), verdict.outcome, len(verdict.measured)) == ([], Outcome.PASS, 4)
    lost = judge(SET, seen_by_dcgm(3, 0, model="NVIDIA GB200") + processors, HEALTH, "gb200_nvl72")
    assert [item.actual for item in lost.findings] == ["3"]


@pytest.mark.parametrize(
    ("active", "ago_s", "waits_s"),
    [(False, 600, 60), (True, 600, 0), (True, 25, 35), (True, 0, 60), (True, -500, 60)],
    ids=["nobody set them", "set long ago", "set 25 s ago", "set just now", "a clock that went back"],
)
def test_dcgms_watches_have_their_minute_before_they_are_asked(
    tmp_path: Path,
    active: bool,  # noqa: FBT001 - a parameter of the test
    ago_s: int,
    waits_s: int,
) -> None:
    """Watches (dcgmi health) of memory, PCIe, NVLink and heat need 60 s before the first query; Healthy before that is no measurement."""  # noqa: E501
    commands = {command.key: command for command in gate(GATE).plan(rack(1), ["node01"])[0].commands}
    set_, check = commands["set-gpus"], commands["check-gpus"]
    assert set_.stage < check.stage
    assert check.timeout_s > 60 + 30
    up = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    programs = {
        "systemctl": f"[ $1 = is-active ] && exit {0 if active else 3}; echo {int((up - ago_s) * 1e6)}",
        "sleep": "echo slept $1",
        "dcgmi": 'echo "dcgmi $*"',
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="ascii")
        (tmp_path / name).chmod(0o755)
    said = subprocess.run(
        check.argv, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said[-1] == "dcgmi health -g g -c -j"
    slept = int(said[0].removeprefix("slept ")) if said[0].startswith("slept") else 0
    assert abs(slept - waits_s) <= 1
