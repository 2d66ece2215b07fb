"""Versions agree with the version set and with each other."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.host.versions import wanted_packages
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.captured import evaluate
from tests.gates.support import Case, Said, check, document, text

GATE = "node/gpu/sanity/versions"


def changed(change: Callable[[dict[str, Any]], object]) -> Said:
    found = copy.deepcopy(document("versions/dgx_h100_healthy.json"))
    change(found)
    return Said(json.dumps(found))


def one(name: str, said: Said, outcome: Outcome, *messages: str) -> Case:
    return Case(name, {"versions": said}, outcome, messages)


CASES = [
    one("healthy", Said(text("versions/dgx_h100_healthy.json")), Outcome.PASS),
    one(
        "older fabric manager",
        Said(text("versions/dgx_h100_fabric_manager_older.json")),
        Outcome.FAIL,
        "node01: fabric manager - Expected: 580.173.02 Actual: 580.126.09. The fabric manager must be exactly the "
        "driver's version. Run install again: it pins this version.",
        "node01: package nvidia-fabricmanager - Expected: 580.173.02-1 Actual: 580.126.09-1. Run install again: it "
        "pins this version.",
    ),
    one(
        "old module still loaded",
        changed(lambda found: found.update(driver_module="570.133.20")),
        Outcome.FAIL,
        "node01: loaded kernel module - Expected: 580.173.02 Actual: 570.133.20. Reboot the node to load the "
        "installed module.",
    ),
    one(
        "NVML says no",
        changed(lambda found: found.update(nvml={"error": "NVML: Driver/library version mismatch"})),
        Outcome.ERROR,
        "node01: NVML does not answer - Expected: an answer Actual: NVML: Driver/library version mismatch. Check "
        "that the driver is loaded (`nvidia-smi` on the node), then run install again.",
    ),
    one(
        "driver too old for the toolkit",
        changed(lambda found: found["nvml"].update(cuda="12.8")),
        Outcome.FAIL,
        "node01: CUDA version of the driver - Expected: at least 13.0 (the toolkit's) Actual: 12.8. "
        "Choose a version set whose driver branch supports its toolkit.",
    ),
    one("newer driver runs an older toolkit", changed(lambda found: found["nvml"].update(cuda="13.1")), Outcome.PASS),
    one(
        "package missing",
        changed(lambda found: found["packages"].update(libnccl2=None)),
        Outcome.FAIL,
        "node01: package libnccl2 - Expected: 2.28.9-1+cuda13.0 Actual: not installed. Run install again: it pins "
        "this version.",
    ),
    one(
        "package not asked for",
        changed(lambda found: found["packages"].pop("libnccl2")),
        Outcome.ERROR,
        "node01: package libnccl2 not reported - Expected: 2.28.9-1+cuda13.0 Actual: nothing. Run the gate again.",
    ),
    one(
        "fabric manager failed",
        changed(lambda found: found["services"].update({"nvidia-fabricmanager.service": "failed"})),
        Outcome.FAIL,
        "node01: nvidia-fabricmanager.service - Expected: active Actual: failed. Run `systemctl status "
        "nvidia-fabricmanager.service` and `journalctl -u nvidia-fabricmanager.service` on the node: they show why.",
    ),
    one(
        "no systemctl",
        changed(lambda found: found["services"].update({"nvidia-dcgm.service": None})),
        Outcome.ERROR,
        "node01: nvidia-dcgm.service not reported - Expected: active Actual: nothing. "
        "Update the driver or the tool that reports it.",
    ),
    one(
        "a package that no tool reports",
        changed(lambda found: found["packages"].pop("cuda-toolkit-13-0")),
        Outcome.ERROR,
        "node01: package cuda-toolkit-13-0 not reported - Expected: 13.0.2-1 Actual: nothing. Run the gate again.",
    ),
    one(
        "module not reported",
        changed(lambda found: found.update(driver_module=None)),
        Outcome.ERROR,
        "node01: loaded kernel module not reported - Expected: 580.173.02 Actual: nothing. "
        "Update the driver or the tool that reports it.",
    ),
    one(
        "cut off",
        Said('{"format": "rackready/versions/v1"}'),
        Outcome.ERROR,
        "node01: versions unreadable - Expected: a complete versions document Actual: the document is not complete. "
        "Run the gate again.",
    ),
    one(
        "services that are no list of them",
        changed(lambda found: found.update(services="active")),
        Outcome.ERROR,
        "node01: versions unreadable - Expected: a complete versions document "
        "Actual: services: Input should be a valid dictionary. Run the gate again.",
    ),
    one(
        "no word of NVML",
        changed(lambda found: found.update(nvml=True)),
        Outcome.ERROR,
        "node01: versions unreadable - Expected: a complete versions document "
        "Actual: nvml: Input should be a valid dictionary or instance of _Nvml. Run the gate again.",
    ),
    one(
        "another format",
        Said('{"format": "rackready/versions/v9", "complete": true}'),
        Outcome.ERROR,
        "node01: versions unreadable - Expected: a complete versions document "
        "Actual: no document of format rackready/versions/v1. Run the gate again.",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(GATE, case)


@pytest.mark.parametrize(
    ("platform", "wanting"),
    [
        ("gb200_nvl72", []),
        ("gb300_nvl72", []),
        ("dgx_h100", ["fabric manager not reported", "package nvidia-fabricmanager", "nvidia-fabricmanager.service"]),
    ],
)
def test_a_fabric_manager_is_asked_for_where_install_puts_one(platform: str, wanting: list[str]) -> None:
    """Trays of an NVL72 have NVSwitches, and none runs their fabric manager: the switch trays do."""
    known = facts(platform, 1)
    found = document("versions/dgx_h100_healthy.json")
    found["packages"] = wanted_packages(known.nodes["node01"]) | {"nvidia-fabricmanager": None}
    found["fabric_manager"] = None
    found["services"]["nvidia-fabricmanager.service"] = "inactive"
    made = gate(GATE)
    verdict = evaluate(made, known, made.plan(known, ["node01"])[0], {"versions": json.dumps(found)}, 0)
    assert sorted(finding.what for finding in verdict.findings) == sorted(wanting)
    assert (verdict.outcome, verdict.measured) == ((Outcome.FAIL, []) if wanting else (Outcome.PASS, ["node01"]))
